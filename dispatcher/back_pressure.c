/*
 * Whether attempts may begin: not while their queue is full of settled groups, while their runner
 * only fails, or while the gateway takes no sessions.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/desk.h"

enum { PROBE_MS = 60000 };

bool claims_closed(void *desk, const struct queue *q)
{
    struct desk *d = desk;

    return q->offered + q->taken >= (uint64_t)d->heritage->config->queue_max_settled;
}

bool claims_runner_lets(struct desk *d, struct runner *r)
{
    uint64_t now = clock_ms();
    uint32_t limit = (uint32_t)d->heritage->config->runner_breaker;

    if (limit == 0 || r->failures < limit) {
        r->blocked = false;
        return true;
    }
    if (!r->blocked) {
        r->blocked = true;
        r->probe_ms = now + PROBE_MS;
        log_error(NULL, "a runner's attempts fail one after the other: probes only",
                  LOG_T("runner", r->name), LOG_U("failures", r->failures));
        return false;
    }
    if (now < r->probe_ms)
        return false;
    r->probe_ms = now + PROBE_MS;
    return true;
}

void claims_probe_back(struct runner *r)
{
    r->probe_ms = 0;
}

bool claims_paused(struct desk *d)
{
    return d->draining || !d->swept || clock_ms() < d->refused_until_ms ||
           atomic_load_explicit(&d->heritage->board->paused, memory_order_relaxed);
}
