/*
 * Calls to upstreams that are asked with messages (engine kind `openai`): the body that goes out,
 * and what the answer tells beside its deltas. The client's own request goes out as it is where the
 * dialect is chat, but the session's sampling holds.
 */
#ifndef RG_TURN_UPSTREAM_H
#define RG_TURN_UPSTREAM_H

#include "worker/turn/turn_internal.h"

/* The request's body in the turn's arena. `asked` is the client's and session's max_tokens, 0:
 * none. */
const struct json *upstream_body(const struct turn *t, int64_t asked, struct arena *a);

/* Takes the whole answer over into the run: its message unless the deltas told it, ids, counts.
 * The run's ids and logprobs are filled already. */
void upstream_take(struct turn *t, struct turn_run *r, const struct engine_result *res);

/* The logprobs of a chunk or of the whole answer ({"content": [...]}) for a client that asked. */
void upstream_logprobs(struct turn *t, struct turn_run *r, const struct json *lps);

#endif
