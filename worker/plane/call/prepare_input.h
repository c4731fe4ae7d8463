/*
 * What of a request the session and the engines are asked with: for calls and for token counts.
 */
#ifndef RG_CALL_PREPARE_INPUT_H
#define RG_CALL_PREPARE_INPUT_H

#include <stdbool.h>

struct arena;
struct call_env;
struct call_input;
struct chat_request;
struct encoder;
struct engine_pool;
struct err;
struct sampling;
struct session_call_input;
struct token_span;

/* Whether the prompt is text without chat. */
bool prepare_is_text(const struct chat_request *req);

/* The ids of such a prompt, in the arena. */
int prepare_encode(struct encoder *encoder, struct arena *a, const struct chat_request *req,
                   struct token_span *ret, struct err *e);

/* Fills the session's input for an answer by these engines, without the prompt's ids. */
int prepare_input(struct call_env *env, const struct engine_pool *engines,
                  const struct call_input *in, const struct sampling *sampling,
                  struct session_call_input *ret, struct err *e);

#endif
