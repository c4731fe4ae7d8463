/* A trie of byte strings that finds patterns in a text (trie.h). Nodes are numbers in one array.
 * Children are lists, because added tokens are few and rarely share beginnings. first[] maps a
 * first byte to its node, so bytes that begin no pattern cost one look-up. */

#include "worker/text/tokens/trie.h"

#include "common/base/budget.h"
#include "common/base/vec.h"

static int32_t new_node(struct trie *t, unsigned char byte)
{
    if (t->n == 0) /* node 0 means "none" */
        *vec_push(t) = (struct trie_node){.value = -1};
    *vec_push(t) = (struct trie_node){.value = -1, .byte = byte};
    return (int32_t)t->n - 1;
}

/* Returns the child for a byte, or 0. */
static int32_t child_of(const struct trie *t, int32_t node, unsigned char byte)
{
    int32_t at = t->at[node].child;

    while (at && t->at[at].byte != byte)
        at = t->at[at].sibling;
    return at;
}

void trie_add(struct trie *t, struct str pattern, int32_t value)
{
    unsigned char head = (unsigned char)pattern.p[0];
    int32_t node = t->first[head];

    if (!node) {
        node = t->first[head] = new_node(t, head);
        t->head = head;
        t->heads++;
    }
    for (size_t i = 1; i < pattern.len; i++) {
        unsigned char byte = (unsigned char)pattern.p[i];
        int32_t next = child_of(t, node, byte);

        if (!next) {
            next = new_node(t, byte);
            t->at[next].sibling = t->at[node].child;
            t->at[node].child = next;
        }
        node = next;
    }
    if (t->at[node].value < 0)
        t->at[node].value = value;
}

/* Finds the longest pattern at `from`, whose first byte has a node. Its value is -1 if there is
 * none. Returns the number of examined bytes. */
static size_t find_longest(const struct trie *t, struct str text, size_t from,
                           struct trie_match *ret)
{
    int32_t node = t->first[(unsigned char)text.p[from]];
    size_t i = from + 1;

    ret->value = -1;
    for (; node; i++) {
        if (t->at[node].value >= 0)
            *ret = (struct trie_match){from, i, t->at[node].value};
        node = i < text.len ? child_of(t, node, (unsigned char)text.p[i]) : 0;
    }
    return i - from;
}

bool trie_find(const struct trie *t, struct str text, size_t from, struct budget *budget,
               struct trie_match *ret)
{
    if (t->n == 0)
        return false;
    for (size_t i = from; i < text.len; i++) {
        if (t->heads == 1) {
            const char *head = memchr(text.p + i, t->head, text.len - i);

            if (!head)
                return false;
            i = (size_t)(head - text.p);
        }
        if (!t->first[(unsigned char)text.p[i]])
            continue;
        if (!budget_spend(budget, find_longest(t, text, i, ret)))
            return false;
        if (ret->value >= 0)
            return true;
    }
    return false;
}

void trie_done(struct trie *t)
{
    vec_done(t);
    *t = (struct trie){0};
}
