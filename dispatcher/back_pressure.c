/*
 * Decides whether attempts may begin. None begin while their queue is full of settled groups, while
 * their runner only fails, or while the gateway accepts no sessions.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/desk.h"
#include "dispatcher/waits.h"
#include "dispatcher/workers.h"

enum {
    PROBE_MS = 60000,
    REFUSED_SHOWN_MS = 5000,
    SWEEP_PATIENT = 4 /* failed pages of the sweep that are normal at a start */
};

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

/* Returns why no attempt begins on this gateway, for `blocked` and `waits`; NULL if attempts may
 * begin. The text is valid until the next call. */
static const char *claims_pause_reason(struct desk *d)
{
    const char *fault = workers_fault(d->workers);
    uint64_t now = clock_ms();

    if (d->draining)
        return "the gateway is shutting down";
    if (atomic_load_explicit(&d->heritage->board->paused, memory_order_relaxed))
        return "the gateway is paused (POST /admin/pause)";
    if (d->refused_at_ms && now < d->refused_at_ms + REFUSED_SHOWN_MS)
        return fault ? fault : d->refused_why;
    if (!d->swept)
        return fault ? fault : d->sweep.failures > SWEEP_PATIENT ? d->sweep.why : NULL;
    return NULL;
}

struct waits_now desk_waits_now(struct desk *d)
{
    return (struct waits_now){
        .wall_ms = clock_wall_ms(),
        .mono_ms = clock_ms(),
        .pause = claims_pause_reason(d),
        .settled_max = (uint64_t)d->heritage->config->queue_max_settled,
        .engines_away = !board_engine_answers(d->heritage->board),
    };
}

bool claims_paused(struct desk *d)
{
    return d->draining || !d->swept || clock_ms() < d->refused_until_ms || desk_is_refusing(d) ||
           atomic_load_explicit(&d->heritage->board->paused, memory_order_relaxed);
}
