/*
 * struct score_question: one question about one token (struct score_ask), in a call of its own, and
 * what the answer comes to: the logprob as the logits alone have it, or what was sampled from.
 */
#ifndef RG_WIRE_SCORE_QUESTION_H
#define RG_WIRE_SCORE_QUESTION_H

#include "common/base/str.h"

struct err;
struct remote;
struct score_ask;
struct score_question;

/* SCORE_* with the logprob, or -1 and e. The call is gone then. */
typedef void (*score_question_done_fn)(void *ctx, int rc, float logprob, const struct err *e);

/* Asks; all outlive it. `done` is called once, later. */
struct score_question *score_question_start(struct remote *r, struct str session_id,
                                            const struct score_ask *ask,
                                            score_question_done_fn done, void *ctx);

/* Ends it without a callback. NULL is fine. */
void score_question_cancel(struct score_question *c);

#endif
