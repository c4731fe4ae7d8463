/* A wait of a task (common/os/task.h) for a session that has left memory. */
#ifndef RG_RESIDENCY_AWAIT_SESSION_H
#define RG_RESIDENCY_AWAIT_SESSION_H

#include <stdbool.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct err;
struct residency;
struct session;

/* Reads the session back if it is not in memory. Returns 0 with *ret pinned, or NULL if the session
 * is gone. With `ended`, finalized sessions whose memory was freed are read back, too. Returns
 * -1 if it cannot be read, or with ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int await_session(struct residency *r, struct str id, bool ended,
                                         struct session **ret, struct err *e);

#endif
