/*
 * struct scorers: engines that score stored ids (--scorer NAME=KIND:URL): a teacher, a frozen
 * reference, the policy itself. They sample nothing for sessions. Each has a queue of its own.
 * Failures that may pass are retried with growing delays until the time is over. One per worker, on
 * its loop.
 */
#ifndef RG_ENGINE_SCORERS_H
#define RG_ENGINE_SCORERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct scorers;
struct score_call;
struct err;

struct score_request {
    struct str scorer;     /* name of the scorer */
    struct str session_id; /* for affinity */
    struct token_span ids; /* copied */
    uint32_t top_k;
    struct str lora; /* copied: adapter to score with; absent: the base weights */
};

/* Borrowed for the callback: ids.n logprobs, the first of which is 0, and ids.n x top_k
 * alternatives. */
struct score_result {
    const float *logprobs;
    const int32_t *top_ids;
    const float *top_logprobs;
};

struct score_events {
    void (*done)(void *ctx, const struct score_result *r);
    void (*failed)(void *ctx, const struct err *e);
};

/* Reports whether there are any scorers. Accepts NULL. */
bool scorers_any(const struct scorers *s);

/* Returns the scorer's index. Fails with ERR_INVALID and the field "score" if there is none of that
 * name. */
int scorers_find(const struct scorers *s, struct str name, struct err *e);

/* Starts a call. Exactly one of done and failed follows, never from inside. The scorer must
 * exist. */
struct score_call *scorers_start(struct scorers *s, const struct score_request *q,
                                 const struct score_events *events, void *ctx);

/* Cancels the call without an event. Accepts NULL. */
void scorers_cancel(struct score_call *c);

#endif
