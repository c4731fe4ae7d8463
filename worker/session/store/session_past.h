/*
 * The committed calls of a session, for repeated requests.
 */
#ifndef RG_SESSION_SESSION_PAST_H
#define RG_SESSION_SESSION_PAST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct arena;
struct err;
struct json;
struct recall;
struct session;

/* A committed call with this number: its answers' response ids, messages, finish reasons and token
 * counts (none: a call without room), and, if `sampled`, ids and logprobs, which are read back
 * where they have left memory. They are borrowed as long as the session is pinned, ids and logprobs
 * until the loop's next turn. NULL when there is none; with e set when it cannot be read back. */
struct session_past_call {
    uint64_t call;
    uint32_t n_answers;
    uint32_t prompt_tokens, completion_tokens;

    const struct session_past_answer {
        struct str response_id, finish_reason, told;
        const struct json *message;
        struct token_span ids; /* none, */
        const float *logprobs; /* and NULL: they were not asked for */
    } * answers;
};
const struct session_past_call *session_past(struct session *s, struct arena *a, uint64_t call,
                                             bool sampled, struct err *e);

/* Prepares session_past with `sampled` of a call that may be long. Reads evicted payloads of its
 * answers back, a step at a time, and holds them. *r, NULL before, is the caller's then, to be
 * freed by session_past_release. Returns 1 if there is more to read, for a later turn; 0 if all is
 * there, or there is no such call; -1 and e if it cannot be read back. The session stays pinned. */
int session_past_recall(struct recall **r, struct session *s, uint64_t call, struct err *e);
void session_past_release(struct recall **r);

/* The newest call with this body hash that a request with this Idempotency-Key (or none) may mean:
 * one with the same key, else one without a key; with no key any. False when there is none. */
bool session_find_call(const struct session *s, const uint64_t body_hash[2], struct str key,
                       uint64_t *ret_call);

#endif
