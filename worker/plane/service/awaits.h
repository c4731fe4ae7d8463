/* A task (common/os/task.h) waits for the ledger. If the task is cancelled, the wait is
 * unregistered. */
#ifndef RG_SERVICE_AWAITS_H
#define RG_SERVICE_AWAITS_H

#include "common/base/err.h"
#include "common/os/task.h"
#include "worker/ledger/ledger.h"

struct service;

/* Zeroed before durable_wait_done. */
struct durable_wait {
    struct waiter waiter;
    size_t due;     /* records that are not durable yet */
    struct err why; /* the record will not be durable in time */
};

/* Returns what the ledger is to call for one more record. If that is not written after all:
 * ledger_forget. */
struct ledger_done durable_wait_done(struct durable_wait *w);

/* Waits until the ledger has called it for all records. -1: cancelled, or the ledger reports a
 * failure; nothing is called later. */
MAY_PAUSE RG_MUSTCHECK int await_durable(struct service *a, struct durable_wait *w, struct err *e);

#endif
