/* What a prompt's ids alone say: whether the model is thinking at their end, and whether the prompt
 * may fit. */
#ifndef RG_CALL_PROMPT_LOOK_H
#define RG_CALL_PROMPT_LOOK_H

#include "worker/text/parsers/kinds.h"
#include "worker/text/tokens/span.h"

struct err;
struct model_call;

/* Returns the state of the thought at the end of the prompt. */
enum thought_state prompt_thought(const struct model_call *t, struct token_parts prompt);

/* Checks by the number of bytes whether the text of a completion may fit. Returns -1 with
 * ERR_CONTEXT_LENGTH if not. */
int prompt_may_fit(const struct model_call *t, struct err *e);

#endif
