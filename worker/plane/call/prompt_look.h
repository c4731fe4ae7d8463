/* Facts about a prompt by its ids alone: whether the model thinks in it, and whether it may fit. */
#ifndef RG_CALL_PROMPT_LOOK_H
#define RG_CALL_PROMPT_LOOK_H

#include "worker/text/parsers/kinds.h"
#include "worker/text/tokens/span.h"

struct err;
struct model_call;

/* Reads the state of the thought from the end of the prompt. */
enum thought_state prompt_thought(const struct model_call *t, struct token_span prompt);

/* Whether the text of a completion may fit, by its bytes. -1 ERR_CONTEXT_LENGTH. */
int prompt_may_fit(const struct model_call *t, struct err *e);

#endif
