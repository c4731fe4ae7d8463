/* Requests that wait for a change of the book. After every change each of them checks again. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "dispatcher/desk.h"

static void poll_free(struct poll *p)
{
    list_remove(&p->entry);
    loop_timer_stop(p->desk->loop, &p->timer);
    if (p->kind->drop)
        p->kind->drop(p);
    free(p);
}

static void on_poll_closed(void *ctx, bool delivered)
{
    (void)delivered;
    poll_free(ctx);
}

static void end_poll(struct poll *p)
{
    exchange_watch(p->x, NULL, NULL);
    p->kind->over(p);
    poll_free(p);
}

static void on_timeout(struct loop_timer *t)
{
    end_poll(CONTAINER_OF(t, struct poll, timer));
}

/* Checks one poll. The exchange is not watched meanwhile, because an answer ends it. */
static bool check_poll(struct poll *p)
{
    exchange_watch(p->x, NULL, NULL);
    if (!p->kind->look(p)) {
        exchange_watch(p->x, on_poll_closed, p);
        return false;
    }
    poll_free(p);
    return true;
}

void poll_start(struct desk *d, struct exchange *x, const struct poll_kind *kind, void *ctx,
                uint64_t wait_ms)
{
    struct poll *p = mem_zalloc(sizeof(*p));

    *p = (struct poll){.desk = d, .x = x, .kind = kind, .ctx = ctx};
    wait_ms -= MIN_OF(wait_ms, exchange_waited_ms(x));
    list_append(&d->polls, &p->entry);
    if (check_poll(p))
        return;
    if (wait_ms == 0 || d->draining)
        end_poll(p);
    else
        loop_timer_set(d->loop, &p->timer, wait_ms, on_timeout);
}

static void on_poll_wake(struct loop_task *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, wake);
    struct poll *p, *next;

    LIST_EACH_SAFE(&d->polls, p, next, struct poll, entry)
        (void)check_poll(p);
}

void polls_wake(struct desk *d)
{
    if (!list_is_empty(&d->polls))
        loop_task_post(d->loop, &d->wake, on_poll_wake);
}

void polls_end(struct desk *d)
{
    struct poll *p, *next;

    LIST_EACH_SAFE(&d->polls, p, next, struct poll, entry)
        end_poll(p);
}
