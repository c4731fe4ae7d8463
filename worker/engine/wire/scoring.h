/*
 * struct scoring: asks an engine for the logprobs that its answer left out (reply.lacks), token by
 * token in order, each by a call whose prompt is in the engine's cache. It ends when all are known,
 * or names the token that cannot be scored. If the request changes logits (penalties, biases,
 * grammars), all tokens are scored from the logits alone: the answer's basis is raw then. Owned by
 * the attempt whose answer it completes.
 */
#ifndef RG_WIRE_SCORING_H
#define RG_WIRE_SCORING_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/text/tokens/span.h"

struct reply;
struct remote;
struct scoring;
struct engine_request;
struct err;
struct sampling;

/* One question: the logprob of `id` after `prompt`. */
struct score_ask {
    struct token_span prompt;
    int32_t id;
    int32_t force;    /* token that the engine is made to sample instead */
    uint32_t n_probs; /* number of alternatives to return */
    /* wanted is the softmax of the logits alone, else the distribution that was sampled from */
    bool raw;
    const struct sampling *sampling;
    uint32_t vocab_size; /* 0: unknown */
    uint32_t seed;       /* different for each question, because the answer may return it */
};

enum {
    SCORE_FOUND,
    SCORE_WIDER, /* not in this answer; a further question may find it */
    SCORE_NONE,  /* cannot be found */
    SCORE_STRAY, /* the answer belongs to a different request */
};

/* Makes a scoring. r, q and y must outlive it. */
struct scoring *scoring_new(struct remote *r, const struct engine_request *q, struct reply *y,
                            void (*done)(void *ctx, const struct err *e), void *ctx);

/* Starts. `done` is called once, with NULL or with the error, perhaps at once; the scoring is freed
 * then. */
void scoring_begin(struct scoring *s);

/* Cancels it without a callback. Accepts NULL. */
void scoring_cancel(struct scoring *s);

#endif
