/* A task (common/os/task.h) waits for the journal. If the task is cancelled, the wait is
 * unregistered. */
#ifndef RG_SERVICE_AWAITS_H
#define RG_SERVICE_AWAITS_H

#include "common/os/task.h"

struct err;
struct service;

/* Waits until the ledger has called ledger_done{waiter_on_event, w}. */
MAY_PAUSE RG_MUSTCHECK int await_durable(struct service *a, struct waiter *w, struct err *e);

#endif
