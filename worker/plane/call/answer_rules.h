/*
 * Checks what an answer's own ids and text show of its engine: whether it obeyed the request. An
 * engine that ignores a field answers 200, but its sample is not what the request asks for. Such an
 * answer fails with ERR_ENGINE_INVALID, and the engine's `lacks` names the field.
 */
#ifndef RG_CALL_ANSWER_RULES_H
#define RG_CALL_ANSWER_RULES_H

struct model_call;
struct sample;

/* Checks an answer that is still arriving. The call fails as soon as the engine has gone beyond a
 * stop string by more than one step. */
void answer_rules_watch(struct model_call *t, struct sample *r);

/* Checks an answer when all its ids have arrived. Tokens that the engine's last step sampled
 * after a stop string are cut, with a warning in the answer. If a rule is broken, the call fails
 * later. */
void answer_rules_check(struct model_call *t, struct sample *r);

/* Checks an upstream's message so far. The call fails as soon as its text continues after a stop
 * string, which itself may be its end. */
void answer_rules_watch_message(struct model_call *t, struct sample *r);

/* Checks an upstream's whole message, with or without ids: by its text, calls and usage. */
void answer_rules_check_message(struct model_call *t, struct sample *r);

#endif
