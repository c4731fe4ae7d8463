/* A worker's part in a fleet: its connection to the store, and what happens to records there
 * (common/fleet/second_copy.h). Nothing of this exists without --fleet. */
#include "common/base/clock.h"
#include "common/fleet/redis_store.h"
#include "common/fleet/second_copy.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/fleet_orders.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/sink/sink.h"
#include "worker/worker_state.h"

enum { AWAIT_POLL_MS = 50 };

/* Adds a record that only the store has: the place was adopted, or the journal lost the record in a
 * power cut. */
static int on_back(void *ctx, uint32_t place, struct str session, struct str record, bool alone,
                   struct err *e)
{
    struct worker_state *w = ctx;

    (void)place; /* the id names it */
    return ledger_add_back(w->service.calls.ledger, session, record, alone, e);
}

static int on_anew(void *ctx, uint32_t place, struct str session)
{
    const struct worker_state *w = ctx;

    (void)place;
    return ledger_begin_anew(w->service.calls.ledger, session);
}

static void on_read_back(void *ctx, uint32_t place, struct str session, const struct err *e)
{
    struct worker_state *w = ctx;

    (void)place;
    if (!e)
        sinks_take_owed(w->service.sinks, session);
    residency_fetched(w->service.calls.residency, session, e);
}

static bool on_wanted(void *ctx, struct str session)
{
    const struct worker_state *w = ctx;

    return second_copy_fetch(w->service.calls.ledger->copy, session);
}

static void on_appended(void *ctx, uint64_t us)
{
    const struct worker_state *w = ctx;

    metrics_observe_us(w->h->page, METRIC_fleet_append, us);
}

static int on_doubt(void *ctx, struct str session, uint64_t since_ms, uint64_t epoch)
{
    const struct worker_state *w = ctx;

    return ledger_mark_doubt(w->service.calls.ledger, session, since_ms, epoch);
}

static void on_reconnect(void *ctx, const char *why)
{
    const struct worker_state *w = ctx;

    redis_store_reconnect(w->store, why);
}

int worker_fleet_open(struct worker_state *w, struct err *e)
{
    const struct config *c = w->h->config;
    struct second_copy_options o = {.loop = w->loop,
                                    .table = w->h->fleet,
                                    .lease_ms = (unsigned)c->fleet_lease_ms,
                                    .outage_ms = (unsigned)c->fleet_outage_ms,
                                    .read_role = ledger_read_role,
                                    .add_back = on_back,
                                    .begin_anew = on_anew,
                                    .on_read_back = on_read_back,
                                    .mark = on_doubt,
                                    .on_appended = on_appended,
                                    .reconnect = on_reconnect,
                                    .ctx = w};

    if (!w->h->fleet)
        return 0;
    o.store = redis_store_open(w->loop, str_cstr(c->fleet), o.lease_ms, e);
    if (!o.store)
        return -1;
    if (c->fleet_acks > 1)
        redis_store_await_replica(o.store);
    w->store = o.store;
    fleet_orders_open(&w->service, w->store); /* reads the orders before anything else */
    w->service.calls.ledger->copy = second_copy_new(&o);
    worker_files_open(w->files);
    w->service.calls.ledger->deliveries->as_records = true;
    w->service.calls.residency->fetch = on_wanted;
    w->service.calls.residency->fetch_ctx = w;
    w->service.calls.residency->fetch_ms = (uint64_t)c->fleet_hold_ms;
    return 0;
}

/* Drops earlier records of ended sessions first, because the store has only the ends of these. */
void worker_fleet_serve_place(struct worker_state *w, uint32_t index)
{
    struct ledger *l = w->service.calls.ledger;
    const struct places *p = w->service.calls.residency->places;

    if (!l->copy)
        return;
    worker_journals_drop_gone(w);
    worker_files_add_place(w->files, index);
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].index == index)
            second_copy_add_place(l->copy, index, p->at[i].journal);
}

void worker_fleet_await(struct worker_state *w)
{
    const struct second_copy *copy = w->service.calls.ledger->copy;
    uint64_t until = clock_ms() + (uint64_t)w->h->config->fleet_lease_ms;

    while (copy && !(second_copy_is_served(copy) && fleet_orders_are_read(&w->service)) &&
           clock_ms() < until)
        (void)loop_poll(w->loop, AWAIT_POLL_MS);
}

bool worker_fleet_is_sent(const struct worker_state *w)
{
    struct ledger *l = w->service.calls.ledger;

    if (l->copy)
        ledger_write_deliveries(l); /* else the close would write them, after the last send */
    return !l->copy || second_copy_behind(l->copy) == 0;
}

void worker_fleet_close(struct worker_state *w)
{
    struct ledger *l = w->service.calls.ledger;

    if (l) {
        if (l->copy)
            ledger_write_deliveries(l);
        l->deliveries->as_records = false;
        l->residency->fetch = NULL;
        second_copy_free(l->copy);
        l->copy = NULL;
    }
    worker_files_close(w->files);
    fleet_orders_close(&w->service);
    w->store = NULL;
}
