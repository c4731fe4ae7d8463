/*
 * Holding what the engine gave against what the session and the settings want of an answer, before
 * it is committed.
 */
#ifndef RG_CALL_ANSWER_CHECK_H
#define RG_CALL_ANSWER_CHECK_H

struct model_call;
struct sample;

/* All samples: whose the logprobs are, sampling support, routed experts. What is missing is logged
 * once a session. -1 with t->err (ERR_ENGINE_INVALID): --strict-logprobs
 * refuses it. */
int answer_check(struct model_call *t);

/* Warns in the sample's answer when its thought is longer than max_thinking_tokens. */
void answer_check_thought(const struct model_call *t, struct sample *r);

#endif
