/*
 * struct admission: decides which new sessions may begin (--kv-admission). A session begins when a
 * replica's KV cache has space for its lease (leases.h). Until then its calls are held here,
 * outside the queue of the pool, so that no other call waits for them. Part of struct engine_pool;
 * unused while the setting is off.
 *
 *   row    ticket a ------ ticket b ------ ticket c        by first arrival, the oldest first
 *          call 0          (client gone,   call 0
 *          call 1           for a while)
 *
 * The oldest session of the node gets free space first (board), whatever its size, so that a large
 * session is not overtaken for ever. A tick every 10 ms admits sessions for which there is space. A
 * call that has waited for --kv-hold is refused with the session's rank. The ticket remains for
 * TICKET_KEPT_MS, so that a session that comes back keeps its rank.
 */
#ifndef RG_ENGINE_KV_ADMISSION_H
#define RG_ENGINE_KV_ADMISSION_H

#include <stdbool.h>

#include "common/base/str.h"

struct engine_call;
struct engine_pool;
struct engine_result;
struct replica;

enum { TICKET_KEPT_MS = 30000 };

/* Reports whether the new call was held or refused; then it must not be queued. Call it only if
 * admission is on. */
bool admission_holds(struct engine_call *c);

/* Called when the call leaves the pool, whatever its state. */
void admission_left(struct engine_call *c);

/* admission_runs: the call runs at r. The other function: its whole answer has arrived. */
void admission_runs(struct engine_call *c, struct replica *r);
void admission_answered(struct engine_call *c, const struct engine_result *answer);

/* Returns the replica for the session's calls, or NULL. */
struct replica *admission_home(const struct engine_pool *p, struct str session);

/* Called when the replica is about to be freed. */
void admission_forget(const struct engine_pool *p, const struct replica *r);

#endif
