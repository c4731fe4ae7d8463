/*
 * Frees the memory of requests and sessions in a helper, because freeing many megabytes would hold
 * a worker's loop for too long. The helper job has a lane of its own, beside the session's work.
 */
#ifndef RG_CALL_GIVE_BACK_H
#define RG_CALL_GIVE_BACK_H

#include <stdbool.h>

#include "common/base/str.h"

struct arena;
struct call_env;
struct session_remains;

/* Frees the arena: at once if it holds less than 4 MiB, else later in a helper. The arena is
 * empty afterwards. Memory that waits for a helper counts as used (its `sum`) until it is freed. */
void call_free_later(struct call_env *env, struct arena *a, struct str session_id);

/* Frees what remains of a session. A remains_fn (session/store/remains.h); ctx: struct call_env. */
void call_bury(void *ctx, struct session_remains *r);

/* Frees the memory that helpers, which have ended, did not free. Frees nothing if `lost`, because
 * threads that hang may still use the memory. */
void call_free_later_end(struct call_env *env, bool lost);

#endif
