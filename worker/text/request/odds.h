/*
 * struct odds: the alternatives of each of n sampled tokens. They are the best tokens of the
 * vocabulary with their logprobs, and the support, which is the set of tokens left by top-k, top-p
 * and similar rules. Stored with an answer as one block of 32-bit words. Pure.
 */
#ifndef RG_REQUEST_ODDS_H
#define RG_REQUEST_ODDS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* The supports of n tokens, one after the other. counts NULL: unknown. */
struct odds_support {
    const int32_t *counts; /* n numbers: size of each token's support, at least 1 */
    const int32_t *ids;    /* n_ids ids; n_ids is the sum of counts */
    const float *logprobs; /* n_ids logprobs, relative to the support alone; NULL: unknown */
    size_t n_ids;
};

struct odds {
    uint32_t n;                /* number of tokens */
    uint32_t n_top;            /* alternatives per token; 0: none are stored */
    const int32_t *top_ids;    /* n x n_top, best first; -1: the engine returned fewer */
    const float *top_logprobs; /* n x n_top; -inf if the id is -1 */
    struct odds_support support;
};

/* Returns the size of the block in bytes. */
size_t odds_bytes(const struct odds *o);

/* Writes the block, of odds_bytes and aligned to 4, except for the alternatives (those of o are not
 * read). *ret_ids and *ret_logprobs point to the space for n x n_top of each. */
void odds_begin(const struct odds *o, char *block, int32_t **ret_ids, float **ret_logprobs);

/* Reads a block of n tokens. The arrays are borrowed, and aligned if the block is. Returns -1 if
 * the block is not valid. */
int odds_read(struct str block, uint32_t n, struct odds *ret);

#endif
