/*
 * Gives a committed call's recorded answer once more, to a client that did not get it whole, in the
 * dialect and stream mode that it asks for now.
 */
#ifndef RG_TURN_REPLAY_H
#define RG_TURN_REPLAY_H

#include "worker/turn/turn.h"

bool replay_exists(struct session *s, struct arena *a, const uint64_t hash[2]);

/* Sends head, deltas (for streams) and finish to the listener, at once. */
void replay_send(struct turn_env *env, struct session *s, struct arena *a, const uint64_t hash[2],
                 struct turn_listener *l);

#endif
