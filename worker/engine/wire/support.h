/*
 * struct support: the sampling support of one attempt's tokens while its answer is read: for each
 * token the ids that it was sampled from. The rows of an event are collected first. support_take
 * then compares them with the event's new tokens and keeps them. If the engine was not asked, or
 * does not know the field, it stays empty at no cost.
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
    bool wanted;     /* false: all rows are skipped */
    int32_t most_id; /* largest id in a row */
    bool lost;       /* a token had no row, so the support of all is dropped */
    /* For the present event: rows one after the other, and their lengths; logprobs of all ids, or
     * only of the sampled tokens. */
    struct json_ints rows, row_counts;
    struct json_floats row_logprobs, sampled;
    /* For the whole answer. */
    struct json_ints ids, counts;
    struct json_floats logprobs;
    size_t own;                /* number of tokens whose logprob is that over the support */
    struct odds_support *told; /* result of support_of; owned */
};

void support_done(struct support *s);

/* Returns the size of its lists in bytes. */
size_t support_bytes(const struct support *s);

void support_begin_event(struct support *s);

/* New tokens of an event. */
struct support_tokens {
    const int32_t *ids;
    float *logprobs; /* replaced by those over the support, where there is one */
    size_t n;
    size_t from; /* index of the first one among the event's rows */
    size_t seen; /* number of tokens, and so of rows, in the event */
    bool cut;    /* the engine stopped part way: rows may be missing */
};

/* Keeps the rows of n new tokens. Returns -1 with ERR_ENGINE_INVALID if they do not fit. */
int support_take(struct support *s, const struct support_tokens *t, struct err *e);

/* Reports whether all n tokens of the answer have a row. */
bool support_known(const struct support *s, size_t n);

/* Returns the support, borrowed from s; NULL: a token has none. */
const struct odds_support *support_of(struct support *s, size_t n);

/* Reports whether the logprobs of all n tokens were replaced by those over the support. */
bool support_decides(const struct support *s, size_t n);

#endif
