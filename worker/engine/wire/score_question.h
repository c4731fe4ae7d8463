/*
 * struct score_question: asks for one token (struct score_ask) in a call of its own. The result is
 * the logprob from the logits alone, or that of the distribution that was sampled from.
 */
#ifndef RG_WIRE_SCORE_QUESTION_H
#define RG_WIRE_SCORE_QUESTION_H

#include "common/base/str.h"

struct err;
struct remote;
struct score_ask;
struct score_question;

/* Gets SCORE_* with the logprob, or -1 and e. The call is freed then. */
typedef void (*score_question_done_fn)(void *ctx, int rc, float logprob, const struct err *e);

/* Sends the question. All arguments must outlive it. `done` is called once, later. */
struct score_question *score_question_start(struct remote *r, struct str session_id,
                                            const struct score_ask *ask,
                                            score_question_done_fn done, void *ctx);

/* Cancels the question without a callback. Accepts NULL. */
void score_question_cancel(struct score_question *c);

#endif
