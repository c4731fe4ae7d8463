/*
 * struct longest: byte-pair encoding without a merge loop, for byte-level vocabularies whose merges
 * come in order.
 *
 * A list of tokens is the merged form of its bytes if and only if every two neighbours are the
 * merged form of theirs. So the tokens of a word are found from left to right: the longest token
 * that begins here and is stable next to its left neighbour. If there is none, the last token is
 * replaced by a shorter one. The tokens before a position are the merged form of the bytes before
 * it, which is unique. So a position from which no continuation was found is never tried again, and
 * the cost is linear in the word.
 *
 * Two neighbours are stable under this condition: if their merges are undone, the last one first,
 * two tokens never touch that have a merge before the one undone next. That needs merges in order:
 * no pair ranks lower than the merges that make its two tokens. Then merging goes through the ranks
 * once, each from left to right. The merges that make each token, and whether they are in order,
 * are computed when the model is loaded. Other models use the merge loop.
 */
#ifndef RG_TOKENS_LONGEST_H
#define RG_TOKENS_LONGEST_H

#include <stddef.h>
#include <stdint.h>

struct budget;
struct pair_table;

/* Limit for merges in a row that make a token, and for tokens with which a token begins. Models
 * beyond it use the merge loop, because each step below walks along such rows. */
enum { LONGEST_ROW_MAX = 1024 };

/* How a token is made. */
struct token_origin {
    int32_t left, right; /* the two sides of its last merge; -1: it is a byte */
    uint32_t order;      /* rank of that merge + 1; 0: it is a byte */
    uint32_t len;        /* length in bytes; 0: no text merges into the token */
    int32_t shorter;     /* longest token with which it begins; -1: none */
};

/* A text with which some token begins. The nodes of its continuations are contiguous. */
struct token_start {
    uint32_t longer; /* first of the nodes with one byte more */
    int32_t token;   /* token that is exactly this text; -1: none */
};

struct longest {
    const struct pair_table *ranks; /* ranks of the merges; borrowed */
    struct token_origin *origins;   /* by id; NULL: the model uses the merge loop */
    struct token_start *nodes;      /* 0-255: the single bytes; one extra node after the last */
    uint8_t *last;                  /* by node: last byte of its text */
    uint32_t *twos;                 /* node of each pair of bytes; 0: none */
};

/* The merges of a model. */
struct longest_merges {
    const struct pair_table *ranks; /* must outlive the struct longest */
    const int32_t *merged;          /* resulting id, by rank */
    size_t n;
    size_t id_count;
    const int32_t *bytes; /* 256 ids; -1: absent */
};

/* Computes the tables. l->origins stays NULL if the merges are not in order. */
void longest_init(struct longest *l, const struct longest_merges *merges);
void longest_done(struct longest *l);

/* Returns the node of n > 1 bytes; 0: there is none. */
uint32_t longest_node(const struct longest *l, const char *text, size_t n);

/* Returns the token that is exactly these n > 0 bytes; -1: they are several tokens. l->origins must
 * not be NULL. */
static inline int32_t longest_whole(const struct longest *l, const char *text, size_t n)
{
    uint8_t first = (uint8_t)text[0];
    uint32_t node;

    if (n == 1)
        return l->nodes[first].token;
    node = n == 2 ? l->twos[first << 8 | (uint8_t)text[1]] : longest_node(l, text, n);
    return node ? l->nodes[node].token : -1;
}

/* Memory that longest_encode needs for n bytes. */
struct longest_room {
    int32_t *tokens;  /* n elements */
    uint32_t *closed; /* n / 32 + 1 elements */
};

/* Writes the tokens of n > 0 bytes to room.tokens. Returns their number; 0: the budget is
 * exhausted. l->origins must not be NULL. */
size_t longest_encode(const struct longest *l, const char *text, size_t n, struct longest_room room,
                      struct budget *budget);

#endif
