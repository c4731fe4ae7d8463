/*
 * struct scoring: asks an engine for the logprobs that its answer left out (reply.lacks), token by
 * token in order, each by a call whose prompt the engine has in its cache. It ends when all are
 * known, or says which one cannot be had. Where the request bends logits (penalties, biases,
 * grammars) all tokens are asked for, as the logits alone have them: the answer's basis is raw
 * then. Owned by the attempt whose answer it completes.
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

/* One question: what is the logprob of `id` behind `prompt`? */
struct score_ask {
    struct token_span prompt;
    int32_t id;
    int32_t force;    /* the token that the engine is made to sample instead */
    uint32_t n_probs; /* alternatives to return */
    bool raw;         /* wanted is the softmax of the logits alone, else what was sampled from */
    const struct sampling *sampling;
    uint32_t vocab_size; /* 0: unknown */
    uint32_t seed;       /* another one for each question: the answer may return it */
};

enum {
    SCORE_FOUND,
    SCORE_WIDER, /* not in this answer; a further question may get it */
    SCORE_NONE,  /* cannot be had */
    SCORE_STRAY, /* the answer is another request's */
};

/* r, q and y outlive it. */
struct scoring *scoring_new(struct remote *r, const struct engine_request *q, struct reply *y,
                            void (*done)(void *ctx, const struct err *e), void *ctx);

/* Asks. `done` is called once, with NULL or with what failed, perhaps at once; the scoring is gone
 * then. */
void scoring_begin(struct scoring *s);

/* Ends it without a callback. NULL is fine. */
void scoring_cancel(struct scoring *s);

#endif
