/*
 * Makes from a request the input for the session and the engines: for calls and for token counts.
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

/* Reports whether the prompt is text without a chat. */
bool prepare_is_text(const struct chat_request *req);

/* Encodes the text of such a prompt as ids, in the arena. */
int prepare_encode(struct encoder *encoder, struct arena *a, const struct chat_request *req,
                   struct token_span *ret, struct err *e);

/* Fills the session's input for an answer by these engines, except the prompt's ids. */
int prepare_input(struct call_env *env, const struct engine_pool *engines,
                  const struct call_input *in, const struct sampling *sampling,
                  struct session_call_input *ret, struct err *e);

#endif
