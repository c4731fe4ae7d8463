/*
 * Writes the request body for upstreams that are asked with messages (engine kind `openai`). The
 * client's own request is passed on if the dialect is chat, but with the session's sampling
 * parameters.
 */
#ifndef RG_CALL_UPSTREAM_BODY_H
#define RG_CALL_UPSTREAM_BODY_H

#include <stdint.h>

#include "worker/text/request/chat_request.h"

struct arena;
struct engine_pool;
struct json;
struct model_call;

/* Writes the long members of the body to t->upstream_texts, perhaps in a helper. Must be called
 * before upstream_body. */
void upstream_texts(struct model_call *t);

/* Returns the request's body in the call's arena, with null for each member that upstream_texts has
 * written. `asked` is the max_tokens of client and session; 0: none. */
const struct json *upstream_body(const struct model_call *t, int64_t asked, struct arena *a);

/* Returns the test for members of a dialect's requests that these engines obey because they get
 * them unchanged. Returns NULL if there are none. */
member_taken_fn call_upstream_takes(const struct engine_pool *engines, const char *dialect);

#endif
