/*
 * What requests and sessions held goes back to the system: of many megabytes that takes a worker's
 * loop longer than others should wait, so a helper does it, in a lane of its own beside the
 * session's work.
 */
#ifndef RG_CALL_GIVE_BACK_H
#define RG_CALL_GIVE_BACK_H

#include <stdbool.h>

#include "common/base/str.h"

struct arena;
struct call_env;
struct session_remains;

/* Frees the arena, at once where it holds less than a megabyte; it is empty afterwards. What a
 * helper is to free counts (its `sum`) until it is gone. */
void call_free_later(struct call_env *env, struct arena *a, struct str session_id);

/* A remains_fn (session/store/remains.h), of a session's content; ctx: struct call_env. */
void call_bury(void *ctx, struct session_remains *r);

/* Helpers have ended: frees what they left; with `lost` nothing, as threads may be at it. */
void call_free_later_end(struct call_env *env, bool lost);

#endif
