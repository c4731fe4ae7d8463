/*
 * struct admission: which new sessions may begin (--kv-admission). A session begins when its lease
 * (leases.h) has room in a replica's KV cache; until then its calls are held here, outside the
 * queue of the pool, so that no other call waits for them. Part of struct engine_pool; unused while
 * the setting is off.
 *
 *   row    ticket a ------ ticket b ------ ticket c        by first arrival, the oldest first
 *          call 0          (client gone,   call 0
 *          call 1           for a while)
 *
 * Room goes to the oldest of the node (board), whatever its size: a large session is not overtaken
 * for ever. A tick every 10 ms admits sessions for which there is space. A call that has waited for
 * --kv-hold is refused with the session's place. The ticket stays for TICKET_KEPT_MS, so that a
 * session that comes back keeps its rank.
 */
#ifndef RG_ENGINE_KV_ADMISSION_H
#define RG_ENGINE_KV_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct engine_call;
struct engine_pool;
struct engine_result;
struct replica;

enum { TICKET_KEPT_MS = 30000 };

/* Whether the new call was held, or refused: then it is not to be queued. Admission is on. */
bool admission_holds(struct engine_call *c);

/* The call leaves the pool, wherever it is. */
void admission_left(struct engine_call *c);

/* The call runs at r; its whole answer has come. */
void admission_runs(struct engine_call *c, struct replica *r);
void admission_answered(struct engine_call *c, const struct engine_result *answer);

/* Returns the replica for the session's calls, or NULL. */
struct replica *admission_home(const struct engine_pool *p, struct str session);

/* The replica is about to be freed. */
void admission_forget(const struct engine_pool *p, const struct replica *r);

#endif
