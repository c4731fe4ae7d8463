/*
 * The body that goes out to upstreams that are asked with messages (engine kind `openai`). The
 * client's own request goes out as it is where the dialect is chat, but the session's sampling
 * holds.
 */
#ifndef RG_CALL_UPSTREAM_BODY_H
#define RG_CALL_UPSTREAM_BODY_H

#include <stdint.h>

#include "worker/text/request/chat_request.h"

struct arena;
struct engine_pool;
struct json;
struct model_call;

/* Writes what is long of the body, maybe in a helper, into the call: t->upstream_texts. Before
 * upstream_body. */
void upstream_texts(struct model_call *t);

/* The request's body in the call's arena, with nulls for what upstream_texts has written. `asked`
 * is the client's and session's max_tokens, 0: none. */
const struct json *upstream_body(const struct model_call *t, int64_t asked, struct arena *a);

/* Returns the test for members of a dialect's requests that these engines obey, because they get
 * them unchanged. NULL: there are none. */
member_taken_fn call_upstream_takes(const struct engine_pool *engines, const char *dialect);

#endif
