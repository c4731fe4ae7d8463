/*
 * struct support: the sampling support of one attempt's tokens while its answer is read: of each
 * token the ids that it was sampled from. What an event brings is gathered first; support_take then
 * holds it against the event's new tokens and keeps it. Engines that were not asked, or do not know
 * the field, leave it empty: nothing is spent then.
 */
#ifndef RG_WIRE_SUPPORT_H
#define RG_WIRE_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/codec/json_scan.h"

struct odds_support;

struct support {
    bool wanted; /* else what comes is passed over */
    bool lost;   /* a token was without: it counts for none */
    /* Of the event: rows one behind the other and how long each is; logprobs of all ids; or of the
     * sampled tokens alone. */
    struct json_ints rows, row_counts;
    struct json_floats row_logprobs, sampled;
    /* Of the answer. */
    struct json_ints ids, counts;
    struct json_floats logprobs;
    size_t own;                /* tokens whose logprob is that of the support */
    struct odds_support *told; /* support that support_of returns; own */
};

void support_done(struct support *s);

/* Returns the size of its lists in bytes. */
size_t support_bytes(const struct support *s);

void support_begin_event(struct support *s);

/* New tokens of an event. */
struct support_tokens {
    const int32_t *ids;
    float *logprobs; /* become those of the support, where it has any */
    size_t n;
    size_t from; /* the first one's place among the event's rows */
    size_t seen; /* how many tokens the event is about; as many rows are due */
    bool cut;    /* the engine gave up: rows may be short */
};

/* Keeps the rows of n new tokens. Returns -1, ERR_ENGINE_INVALID, if they do not fit. */
int support_take(struct support *s, const struct support_tokens *t, struct err *e);

/* Whether something is known of all n tokens of the answer. */
bool support_known(const struct support *s, size_t n);

/* Returns the known support, borrowed from s; NULL: none, or not of all. */
const struct odds_support *support_of(struct support *s, size_t n);

/* Whether the logprobs of all n tokens became those of the support. */
bool support_decides(const struct support *s, size_t n);

#endif
