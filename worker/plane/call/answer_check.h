/*
 * Compares the engine's answer with what the session and the settings require, before it is
 * committed.
 */
#ifndef RG_CALL_ANSWER_CHECK_H
#define RG_CALL_ANSWER_CHECK_H

struct model_call;
struct sample;

/* Checks all samples: basis of the logprobs, sampling support, routed experts. Missing data is
 * logged once a session. Returns -1 with t->err (ERR_ENGINE_INVALID) if --strict-logprobs refuses
 * it. */
int answer_check(struct model_call *t);

/* Adds a warning to the sample's answer if its thought is longer than max_thinking_tokens. */
void answer_check_thought(const struct model_call *t, struct sample *r);

#endif
