/*
 * Gives a committed call's recorded answer once more, to a client that did not get it whole, in the
 * dialect and stream mode that it asks for now.
 */
#ifndef RG_CALL_REPLAY_H
#define RG_CALL_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answer_sink;
struct arena;
struct call_env;
struct err;
struct json;
struct recorded_call;
struct session;

/* Gathers what the session's committed call with that number told. What is gathered lies in the
 * arena and borrows texts of the session, which is to be pinned until it was told. NULL: there is
 * no such call; with e set: it cannot be read back. Without logprobs it tells none. */
struct recorded_call *replay_gather(struct call_env *env, struct session *s, struct arena *a,
                                    uint64_t call, bool logprobs, struct err *e);

/* Sampled tokens that it tells, of all answers, and what it takes to write them, in bytes of text
 * (replay_answer_cost of each message); counted up to `enough`. */
size_t replay_tokens(const struct recorded_call *r);
size_t replay_cost(const struct recorded_call *r, size_t enough);

/* Of an assistant's message in normalised form: calls' arguments count several times, since
 * dialects parse them. */
size_t replay_answer_cost(const struct json *message, size_t enough);

/* Tells head, deltas (for streams) and finish, at once. Pure: a helper may do it, which has the
 * arena for itself meanwhile. */
void replay_tell(const struct recorded_call *r, const struct answer_sink *sink, void *ctx,
                 bool stream);

#endif
