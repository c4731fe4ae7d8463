/*
 * Computes the probability with which a token was sampled from logprobs of the logits alone:
 * temperature, then top-k, top-p and min-p, in the order of adapters. For tokens that an engine
 * scores only before sampling. Pure.
 */
#ifndef RG_WIRE_PROCESSED_H
#define RG_WIRE_PROCESSED_H

#include <stdint.h>

#include "common/codec/json_scan.h"

struct sampling;

struct processed {
    const struct sampling *sampling;
    struct json_floats logprobs; /* logprobs of the best tokens, best first, or of all tokens */
    uint32_t vocab_size;         /* 0: unknown */
    float own;                   /* logprob of the sampled token before sampling parameters */
};

/* Computes the logprob of a token whose logprob before sampling is p->own. SCORE_WIDER: more of the
 * best tokens are needed for an accuracy of 1e-5. SCORE_NONE: the token cannot have been sampled
 * with these parameters, or they change logits in a way that depends on other tokens. */
int processed_logprob(const struct processed *p, float *ret);

#endif
