/*
 * struct score_answer: what an engine answers to one struct score_ask, read flat as its bytes come:
 * of each alternative there is its logprob and whether it is the token that was asked for, nothing
 * else. A whole vocabulary is tens of thousands of them. Pure.
 */
#ifndef RG_WIRE_SCORE_ANSWER_H
#define RG_WIRE_SCORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec/json_scan.h"
#include "worker/engine/wire/wire_fields.h"

struct score_ask;

/* What a wire's table of the answer names its fields by. */
enum {
    SCORE_FIELD_SEED = 1, /* scalar: of the request that is answered */
    SCORE_FIELD_TOKEN,    /* scalar: each token that was sampled */
    SCORE_FIELD_ENTRY,    /* mark: an entry of logprobs; the first one counts */
    SCORE_FIELD_ID,       /* scalars of it */
    SCORE_FIELD_LOGPROB,
    SCORE_FIELD_TOP, /* mark: an alternative of it */
    SCORE_FIELD_TOP_ID,
    SCORE_FIELD_TOP_LOGPROB,
};

/* An entry, or an alternative of one. */
struct score_item {
    int64_t id;    /* -1: not returned */
    float logprob; /* NaN: not returned */
};

struct score_answer {
    const struct score_ask *ask;
    struct fields fields;
    size_t bytes, max_bytes;
    bool complete;
    size_t n_tokens, n_entries;
    int64_t token; /* the last one that was sampled */
    int64_t seed;  /* -1: not returned */
    struct score_item entry, top;
    bool in_top;
    float own_top;           /* logprob of the alternative that is the token; NaN: none is */
    struct json_floats tops; /* logprobs of the alternatives, best first as engines return them */
};

/* The next answer is to `ask`, which outlives it, with the wire's table. */
void score_answer_begin(struct score_answer *a, const struct score_ask *ask,
                        const struct field *table, size_t n);
void score_answer_done(struct score_answer *a);

/* The next bytes: 0, or -1 ERR_ENGINE_INVALID: it is no JSON, or more than such an answer can
 * have. */
int score_answer_feed(struct score_answer *a, struct str bytes, struct err *e);

/* All bytes have come. FOUND: *ret is the logprob of the token as the logits alone have it. */
int score_answer_own(const struct score_answer *a, float *ret);

#endif
