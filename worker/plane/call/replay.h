/*
 * Sends a committed call's recorded answer again, to a client that did not get all of it, in the
 * dialect and stream mode of the new request.
 */
#ifndef RG_CALL_REPLAY_H
#define RG_CALL_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"

struct answer_sink;
struct arena;
struct call_env;
struct err;
struct json;
struct recorded_call;
struct session;

/* Gathers the answer of the session's committed call with that number. The result is in the arena
 * and borrows texts of the session, which must be pinned until the answer was sent. Returns NULL
 * without an error in e if there is no such call, and NULL with e set if the call cannot be read
 * back. The result has logprobs only with `logprobs`. */
MAY_PAUSE struct recorded_call *replay_gather(struct call_env *env, struct session *s,
                                              struct arena *a, uint64_t call, bool logprobs,
                                              struct err *e);

/* Counts the sampled tokens of all answers plus the cost of writing their text (replay_answer_cost
 * of each message), up to `enough`. */
size_t replay_tokens(const struct recorded_call *r);
size_t replay_cost(const struct recorded_call *r, size_t enough);

/* Estimates the cost of an assistant's message in normalised form. Arguments of tool calls count
 * several times, because dialects parse them. */
size_t replay_answer_cost(const struct json *message, size_t enough);

/* Sends head, deltas (for streams) and finish at once. Pure: may run in a helper if nobody else
 * uses the arena meanwhile. */
void replay_tell(const struct recorded_call *r, const struct answer_sink *sink, void *ctx,
                 bool stream);

#endif
