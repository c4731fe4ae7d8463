#include "worker/plane/service/awaits.h"

#include "worker/plane/service/service.h"

static void on_durable(void *ctx)
{
    struct durable_wait *w = ctx;

    if (--w->due == 0)
        waiter_wake(&w->waiter);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct durable_wait *w = ctx;

    w->why = *e;
    on_durable(w);
}

struct ledger_done durable_wait_done(struct durable_wait *w)
{
    w->due++;
    return (struct ledger_done){on_durable, w, on_failed};
}

int await_durable(struct service *a, struct durable_wait *w, struct err *e)
{
    while (w->due > 0) {
        if (task_wait(&w->waiter, e) == 0)
            continue;
        ledger_forget(a->calls.ledger, w);
        return -1;
    }
    if (w->why.kind == ERR_NONE)
        return 0;
    *e = w->why;
    return -1;
}
