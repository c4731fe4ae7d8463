/*
 * Types of token ids for the layers above `tokens`. An id is an int32_t >= 0. struct token_vec is
 * VEC(int32_t) with a name: the vec_ macros of common/base/vec.h work on it, and its maker calls
 * vec_done. struct token_span borrows.
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

#endif
