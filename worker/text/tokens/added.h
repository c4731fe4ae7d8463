/*
 * struct added: the added vocabulary. Gives each added token the id that the library would give it.
 * Keeps the entries that are searched as patterns in raw and in normalized text. The loader fills
 * the tries, because normalized patterns need the normalizer. Filled while loading, then read-only.
 * Contents are borrowed from the tokenizer's arena.
 */
#ifndef RG_TOKENS_ADDED_H
#define RG_TOKENS_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/map.h"
#include "worker/text/tokens/trie.h"

struct added_token;
struct err;
struct vocab;

struct added_pattern {
    struct str content;
    int32_t id;
    bool normalized;
};

struct added_list {
    struct added_token *at;
    size_t n, cap;
};

struct added_patterns {
    struct added_pattern *at;
    size_t n, cap;
};

struct added {
    /* one entry for each content; flags are those of its last entry, special if any entry with it
     * is */
    struct added_list list;
    struct added_patterns patterns; /* special entries first, each group in the order of the file */
    struct map by_content;          /* content -> index + 1 as a pointer */
    int32_t *by_id;                 /* for ids from id_first on: index + 1; 0: not an added token */
    size_t id_first;                /* lowest id: in most vocabularies added tokens come last */
    size_t id_count;                /* highest id + 1, 0 if there are none */
    int64_t top;                    /* highest id, -1 if there are none */
    struct trie raw, normalized;    /* values are ids */
};

/* Adds the entries of the file (ids in them do not count). Returns -1 if there are too many ids. */
int added_init(struct added *a, const struct added_token *entries, size_t n,
               const struct vocab *vocab, struct err *e);
void added_done(struct added *a);

/* Reports whether two entries have the same content and flags. */
bool added_same(const struct added_token *x, const struct added_token *y);

/* Returns the token with this id or content, or NULL. */
const struct added_token *added_by_id(const struct added *a, int32_t id);
const struct added_token *added_by_content(const struct added *a, struct str content);

#endif
