/*
 * Types of token ids for the layers above `tokens`. An id is an int32_t >= 0. struct token_vec is
 * VEC(int32_t) with a name: the vec_ macros of common/base/vec.h work on it, and its maker calls
 * vec_done. struct token_span and struct token_parts borrow.
 */
#ifndef RG_TOKENS_SPAN_H
#define RG_TOKENS_SPAN_H

#include <stddef.h>
#include <stdint.h>

struct token_vec {
    int32_t *at;
    size_t n, cap;
};

struct token_span {
    const int32_t *at;
    size_t n;
};

/* Ids that are in several places: those of the parts, one after the other. */
struct token_parts {
    const struct token_span *parts;
    size_t n_parts;
    size_t n; /* number of ids of all parts */
};

/* Returns the one part. */
static inline struct token_parts token_parts_of(const struct token_span *part)
{
    return (struct token_parts){part, 1, part->n};
}

/* Writes the ids from position `from` on: n of them, which must exist. */
void token_parts_copy(struct token_parts p, size_t from, size_t n, int32_t *out);

#endif
