/*
 * struct score_answer: reads an engine's answer to one struct score_ask as its bytes come. Of each
 * alternative it keeps only the logprob and whether it is the token that was asked for, because a
 * whole vocabulary has tens of thousands of them. Pure.
 */
#ifndef RG_WIRE_SCORE_ANSWER_H
#define RG_WIRE_SCORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec/json_scan.h"
#include "worker/engine/wire/wire_fields.h"

struct score_ask;

/* Field ids for a wire's table of the answer. */
enum {
    SCORE_FIELD_SEED = 1, /* scalar: seed of the answered request */
    SCORE_FIELD_TOKEN,    /* scalar: id of each sampled token */
    SCORE_FIELD_ENTRY,    /* mark: an entry of logprobs, of which the first counts */
    SCORE_FIELD_ID,       /* scalars of the entry */
    SCORE_FIELD_LOGPROB,
    SCORE_FIELD_TOP, /* mark: an alternative in the entry */
    SCORE_FIELD_TOP_ID,
    SCORE_FIELD_TOP_LOGPROB,
};

/* An entry, or one of its alternatives. */
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
    int64_t token; /* id of the last sampled token */
    int64_t seed;  /* -1: not returned */
    struct score_item entry, top;
    bool in_top;
    /* logprob of the alternative that is the token; NaN: no alternative is */
    float own_top;
    struct json_floats tops; /* logprobs of the alternatives, best first as engines return them */
};

/* Begins an answer to `ask`, which must outlive it, with the wire's table. */
void score_answer_begin(struct score_answer *a, const struct score_ask *ask,
                        const struct field *table, size_t n);
void score_answer_done(struct score_answer *a);

/* Reads the next bytes. Returns 0, or -1 with ERR_ENGINE_INVALID if it is not JSON or longer than
 * such an answer can be. */
int score_answer_feed(struct score_answer *a, struct str bytes, struct err *e);

/* Returns the result after all bytes. FOUND: *ret is the logprob of the token from the logits
 * alone. */
int score_answer_own(const struct score_answer *a, float *ret);

#endif
