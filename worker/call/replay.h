/*
 * Gives a committed call's recorded answer once more, to a client that did not get it whole, in the
 * dialect and stream mode that it asks for now.
 */
#ifndef RG_CALL_REPLAY_H
#define RG_CALL_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct call_env;
struct call_listener;
struct session;

/* Sends head, deltas (for streams) and finish of the session's committed call with that number to
 * the listener, at once. False, and nothing sent, when there is none. */
bool replay_send(struct call_env *env, struct session *s, struct arena *a, uint64_t call,
                 struct call_listener *l);

#endif
