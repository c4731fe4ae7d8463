/*
 * struct longest: merging without merging, for byte-level vocabularies whose merges come in order.
 *
 * A row of tokens is what its bytes merge into if and only if every two neighbours are what theirs
 * merge into. So the tokens of a word are found from left to right: the longest token that begins
 * here and is stable next to its left neighbour. If there is none, the last token is replaced by a
 * shorter one. The tokens before a position are the merged form of the bytes before it, which is
 * unique. So a position from which no way led on is never entered again, and the cost is linear in
 * the word.
 *
 * Two neighbours are stable if undoing their merges, the last one first, never makes two tokens
 * touch that have a merge before the one undone next. That needs merges in order: no pair ranks
 * lower than the merges that make its two tokens. Then merging runs through the ranks once, each
 * from left to right. Which merges a token is made by, and whether they are in order, is worked out
 * when the model is loaded; other models merge.
 */
#ifndef RG_TOKENS_LONGEST_H
#define RG_TOKENS_LONGEST_H

#include <stddef.h>
#include <stdint.h>

struct budget;
struct pair_table;

/* Models of which a token is made by more merges in a row, or begins with more other tokens, merge:
 * each question below walks along such rows. */
enum { LONGEST_ROW_MAX = 1024 };

/* How a token comes about. */
struct token_origin {
    int32_t left, right; /* its last merge; -1: it is a byte */
    uint32_t order;      /* rank of that merge + 1; 0: a byte */
    uint32_t len;        /* in bytes; 0: no text merges into it */
    int32_t shorter;     /* the longest token that it begins with; -1: none */
};

/* A text with which some token begins. The nodes of its continuations are in a row. */
struct token_start {
    uint32_t longer; /* the first node that has one byte more */
    int32_t token;   /* -1: none ends here */
};

struct longest {
    const struct pair_table *ranks; /* ranks of the merges; borrowed */
    struct token_origin *origins;   /* by id; NULL: this model is not encoded in this way */
    struct token_start *nodes;      /* 0-255: the bytes; one more after the last */
    uint8_t *last;                  /* by node: its last byte */
    uint32_t *twos;                 /* the node of two bytes; 0: none */
};

/* The merges that a model was made of. */
struct longest_merges {
    const struct pair_table *ranks; /* outlives the struct longest */
    const int32_t *merged;          /* by rank: what comes of it */
    size_t n;
    size_t id_count;
    const int32_t *bytes; /* 256 ids; -1: absent */
};

/* Works out the tables; l->origins stays NULL when the merges are not in order. */
void longest_init(struct longest *l, const struct longest_merges *merges);
void longest_done(struct longest *l);

/* The node of n > 1 bytes; 0: none. */
uint32_t longest_node(const struct longest *l, const char *text, size_t n);

/* The token that all of n > 0 bytes are; -1: they are several. l->origins is not NULL. */
static inline int32_t longest_whole(const struct longest *l, const char *text, size_t n)
{
    uint8_t first = (uint8_t)text[0];
    uint32_t node;

    if (n == 1)
        return l->nodes[first].token;
    node = n == 2 ? l->twos[first << 8 | (uint8_t)text[1]] : longest_node(l, text, n);
    return node ? l->nodes[node].token : -1;
}

/* Room that longest_encode needs for n bytes. */
struct longest_room {
    int32_t *tokens;  /* n */
    uint32_t *closed; /* n / 32 + 1 */
};

/* Writes what n > 0 bytes merge into to room.tokens; how many tokens, 0 when the budget has run
 * out. l->origins is not NULL. */
size_t longest_encode(const struct longest *l, const char *text, size_t n, struct longest_room room,
                      struct budget *budget);

#endif
