/*
 * The committed calls of a session, for repeated requests.
 */
#ifndef RG_SESSION_SESSION_PAST_H
#define RG_SESSION_SESSION_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct arena;
struct err;
struct json;
struct session;

/* A committed call: its answers' response ids, messages, finish reasons and token counts (none: a
 * call without space), and, if `sampled`, ids and logprobs, which are read back if they were
 * evicted. Borrowed as long as the session is pinned; ids and logprobs until the next pause.
 * session_past returns NULL if there is no call with the number, or with e set if it cannot be read
 * back. */
struct session_past_call {
    uint64_t call;
    uint32_t n_answers;
    uint32_t prompt_tokens, completion_tokens;

    const struct session_past_answer {
        struct str response_id, finish_reason, told;
        const struct json *message;
        struct token_span ids; /* empty, */
        const float *logprobs; /* and NULL, unless they were requested */
    } * answers;
};
MAY_PAUSE const struct session_past_call *session_past(struct session *s, struct arena *a,
                                                       uint64_t call, bool sampled, struct err *e);

/* Finds the newest call with this body hash that a request with this Idempotency-Key (or none) may
 * repeat: a call with the same key, else one without a key; for a request without a key, any.
 * Returns false if there is none. */
bool session_find_call(const struct session *s, const uint64_t body_hash[2], struct str key,
                       uint64_t *ret_call);

#endif
