/*
 * Waits of tasks (common/os/task.h) for what other rooms announce by callbacks. Each takes back
 * what it registered when the task is cancelled.
 */
#ifndef RG_SERVICE_AWAITS_H
#define RG_SERVICE_AWAITS_H

#include <stdbool.h>

#include "common/base/str.h"
#include "common/os/task.h"

struct err;
struct service;
struct session;

/* Reads the session back if it is not in memory. Returns 0 with *ret pinned, or NULL if the session
 * is gone. With `ended`, finalized sessions whose memory was freed are read back, too. -1: it
 * cannot be read, or ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int await_session(struct service *a, struct str id, bool ended,
                                         struct session **ret, struct err *e);

/* Waits for ledger_done{waiter_on_event, w}. */
MAY_PAUSE RG_MUSTCHECK int await_durable(struct service *a, struct waiter *w, struct err *e);

#endif
