/*
 * struct trie: a set of byte patterns, searched leftmost-longest. Filled while loading, then
 * read-only. Children are in sibling lists. The first byte is looked up in a table, so that text
 * without any first byte is skipped at memory speed. If all patterns begin with the same byte,
 * memchr finds it.
 */
#ifndef RG_TOKENS_TRIE_H
#define RG_TOKENS_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct budget;

struct trie_node {
    int32_t child, sibling; /* numbers of nodes; 0: none */
    int32_t value;          /* value of the pattern that ends here, or -1 */
    unsigned char byte;
};

struct trie {
    struct trie_node *at;
    size_t n, cap;
    int32_t first[256]; /* node of each first byte, or 0 */
    unsigned heads;     /* number of bytes that have a first node; the newest of them */
    unsigned char head;
};

struct trie_match {
    size_t start, end;
    int32_t value;
};

/* Adds a pattern (not empty) with a value >= 0. An existing pattern keeps its value. */
void trie_add(struct trie *t, struct str pattern, int32_t value);

/* Finds the first position at or after `from` at which a pattern starts, and the longest one there.
 * Returns false if there is none, or if the budget is exhausted. */
bool trie_find(const struct trie *t, struct str text, size_t from, struct budget *budget,
               struct trie_match *ret);

static inline bool trie_empty(const struct trie *t)
{
    return t->n == 0;
}

void trie_done(struct trie *t);

#endif
