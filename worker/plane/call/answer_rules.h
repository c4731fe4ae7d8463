/*
 * What an answer's own ids and text prove of its engine: whether it kept to the request. An engine
 * that ignores a field answers 200, and what it sampled is not what the request asks for. Such an
 * answer fails with ERR_ENGINE_INVALID, and the engine's `lacks` names the field.
 */
#ifndef RG_CALL_ANSWER_RULES_H
#define RG_CALL_ANSWER_RULES_H

struct model_call;
struct sample;

/* Checks an answer that is still coming: the call fails as soon as the engine is past a stop
 * string by more than one step. */
void answer_rules_watch(struct model_call *t, struct sample *r);

/* Checks an answer whose ids are all taken. Tokens that the engine's last step sampled after a stop
 * string are cut, with a warning in the answer. If a rule is broken, the call fails later. */
void answer_rules_check(struct model_call *t, struct sample *r);

/* Checks what has come of an upstream's message: the call fails as soon as its text goes on after a
 * stop string, which itself may be its end. */
void answer_rules_watch_message(struct model_call *t, struct sample *r);

/* Checks an upstream's whole message, with ids or without: by its text, calls and usage. */
void answer_rules_check_message(struct model_call *t, struct sample *r);

#endif
