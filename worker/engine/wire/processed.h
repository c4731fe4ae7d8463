/*
 * The probability that a token was sampled with, from logprobs of the logits alone: temperature,
 * then top-k, top-p and min-p, as adapters order them. For tokens that an engine scores only
 * before sampling. Pure.
 */
#ifndef RG_WIRE_PROCESSED_H
#define RG_WIRE_PROCESSED_H

#include <stdint.h>

#include "common/codec/json_scan.h"

struct sampling;

struct processed {
    const struct sampling *sampling;
    struct json_floats logprobs; /* logprobs of the best tokens, best first, or of all */
    uint32_t vocab_size;         /* 0: unknown */
    float own;                   /* logprob of the sampled token */
};

/* The logprob of a token whose own one, before sampling, is p->own. SCORE_WIDER: more of the best
 * are needed to be sure within 1e-5; SCORE_NONE: it cannot have been sampled so, or the parameters
 * change logits by more than themselves. */
int processed_logprob(const struct processed *p, float *ret);

#endif
