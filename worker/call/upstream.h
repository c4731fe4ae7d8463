/*
 * Calls to upstreams that are asked with messages (engine kind `openai`): the body that goes out,
 * and what the answer tells beside its deltas. The client's own request goes out as it is where the
 * dialect is chat, but the session's sampling holds.
 */
#ifndef RG_CALL_UPSTREAM_H
#define RG_CALL_UPSTREAM_H

#include <stdint.h>

#include "worker/request/chat_request.h"

struct arena;
struct call_env;
struct engine_result;
struct json;
struct model_call;
struct sample;

/* The request's body in the call's arena. `asked` is the client's and session's max_tokens, 0:
 * none. */
const struct json *upstream_body(const struct model_call *t, int64_t asked, struct arena *a);

/* Takes the whole answer over into the run: its message unless the deltas told it, ids, counts.
 * The run's ids and logprobs are filled already. */
void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res);

/* The logprobs of a chunk or of the whole answer ({"content": [...]}) for a client that asked. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps);

/* Which members of a dialect's requests the engines obey, because they get them as they are. NULL:
 * none. */
member_taken_fn call_upstream_takes(const struct call_env *env, const char *dialect);

#endif
