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

/* Gathers the answer of the session's committed call with that number. The result is in the arena
 * and borrows texts of the session, which must be pinned until the answer was sent. NULL: there is
 * no such call; with e set: it cannot be read back. Without `logprobs` it has none. */
struct recorded_call *replay_gather(struct call_env *env, struct session *s, struct arena *a,
                                    uint64_t call, bool logprobs, struct err *e);

/* Counts the sampled tokens of all its answers, and the bytes of text to write them
 * (replay_answer_cost of each message), up to `enough`. */
size_t replay_tokens(const struct recorded_call *r);
size_t replay_cost(const struct recorded_call *r, size_t enough);

/* Estimates the cost of an assistant's message in normalised form: calls' arguments count several
 * times, since dialects parse them. */
size_t replay_answer_cost(const struct json *message, size_t enough);

/* Tells head, deltas (for streams) and finish, at once. Pure: a helper may do it, which has the
 * arena for itself meanwhile. */
void replay_tell(const struct recorded_call *r, const struct answer_sink *sink, void *ctx,
                 bool stream);

#endif
