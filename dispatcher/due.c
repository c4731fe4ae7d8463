/* Events of the clock: leases that have run out, deadlines, deliveries without acknowledgement. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/waits.h"
#include "dispatcher/workers.h"

/* time that groups wait before a runner that no executor offers is logged */
enum { MISSED_MS = 10000 };

/* LATE_PART: a check that is late by this fraction of a lease extends the leases */
enum { LOST_AGAIN_MS = 1000, LATE_PART = 8 };

uint64_t desk_lease_ms(const struct desk *d)
{
    return (uint64_t)d->heritage->config->attempt_lease_ms;
}

void desk_begin_lease(const struct desk *d, struct attempt *a)
{
    a->lease_due_ms = clock_ms() + desk_lease_ms(d);
}

/* Extends all leases by the time for which the dispatcher was held, or refused requests: meanwhile
 * no executor could renew and no trainer could acknowledge. */
static void make_up(struct desk *d, uint64_t now_ms, bool refusing)
{
    uint64_t next_ms = d->leases_ms + (refusing ? 0 : DESK_TICK_MS), late_ms = 0;
    struct attempt *a;
    struct group *g;

    if (now_ms > next_ms)
        late_ms = now_ms - next_ms;
    d->leases_ms = now_ms;
    if (!refusing && late_ms < desk_lease_ms(d) / LATE_PART)
        return;
    LIST_EACH(&d->book.running, a, struct attempt, entry)
        if (a->lease_due_ms > 0 && a->lease_due_ms < LEASE_NOT_BEGUN)
            a->lease_due_ms += late_ms;
    LIST_EACH(&d->book.all, g, struct group, all_entry)
        if (g->taken_until_ms > 0)
            g->taken_until_ms += late_ms;
}

void desk_check_leases(struct desk *d, uint64_t now_ms)
{
    uint64_t lease_ms = desk_lease_ms(d);
    struct attempt *a, *next;
    bool refusing = desk_is_refusing(d);

    make_up(d, now_ms, refusing);
    if (refusing)
        return;
    for (a = LIST_FIRST_OF(&d->book.running, struct attempt, entry); a; a = next) {
        next = LIST_NEXT_OF(&d->book.running, a, struct attempt, entry);
        if (a->lease_due_ms == 0)
            /* the lease was not set, because the attempt comes from a replay */
            a->lease_due_ms = now_ms + lease_ms;
        if (a->ending || now_ms < a->lease_due_ms)
            continue;
        /* for the case that the end cannot be recorded */
        a->lease_due_ms = now_ms + LOST_AGAIN_MS;
        ends_lost(d, a, "the executor's lease ran out", clock_wall_ms());
        /* Restart from the beginning, because a group that settles ends further attempts. */
        next = LIST_FIRST_OF(&d->book.running, struct attempt, entry);
    }
}

static void write_plain(struct desk *d, enum record_kind kind, struct group *g)
{
    struct buf record = {0};
    struct err e;

    record_plain(kind, g->spec.id, clock_wall_ms(), &record);
    if (desk_write(d, g->spec.id, buf_str(&record), NULL, &e) < 0)
        log_warn(NULL, "a change cannot be recorded", LOG_T("error", e.text));
    buf_done(&record);
    polls_wake(d);
}

void desk_check_groups(struct desk *d, uint64_t now_ms, uint64_t wall_ms)
{
    uint64_t keep_ms = (uint64_t)d->heritage->config->export_retention_ms;
    struct group *g, *next;

    if (desk_is_refusing(d))
        return;
    LIST_EACH_SAFE(&d->book.all, g, next, struct group, all_entry) {
        if (g->delivery == DELIVERY_TAKEN && g->taken_until_ms == 0)
            /* the lease was not set, because the group comes from a replay */
            g->taken_until_ms = now_ms + g->lease_ms;
        if (g->delivery == DELIVERY_TAKEN && now_ms >= g->taken_until_ms) {
            metrics_count(d->heritage->page, METRIC_groups_redelivered, 1);
            write_plain(d, RECORD_RETURNED, g);
        } else if (!group_settled(g) && g->spec.deadline_ms && !g->overdue &&
                   wall_ms >= g->submitted_at_ms + g->spec.deadline_ms) {
            write_plain(d, RECORD_DEADLINE, g);
        } else if (group_settled(g) && !g->queue && wall_ms >= g->settled_at_ms + keep_ms) {
            write_plain(d, RECORD_ACKED, g);
        }
    }
}

/* --- reaching workers and executors --- */

static bool is_asked_for(const struct runner *r)
{
    for (size_t i = 0; i < r->lanes.n; i++)
        if (r->lanes.at[i]->waiting > 0)
            return true;
    return false;
}

/* Logs a runner that groups wait for and no executor offers, unless an executor may still come. */
static void check_runner(struct desk *d, struct runner *r, uint64_t now_ms)
{
    struct buf why = {0};

    if (!is_asked_for(r) || waits_is_offered(r, now_ms)) {
        r->missed_ms = 0;
        r->missed_logged = false;
        return;
    }
    if (r->missed_ms == 0)
        r->missed_ms = now_ms;
    if (r->missed_logged || now_ms < r->missed_ms + MISSED_MS)
        return;
    r->missed_logged = true;
    waits_not_offered(&d->book, r, now_ms, &why);
    log_warn(NULL, "groups wait", LOG_S("reason", buf_str(&why)));
    buf_done(&why);
}

void desk_check_ways(struct desk *d, uint64_t now_ms)
{
    _Atomic uint32_t *shown = &d->heritage->board->unreached;
    const char *fault = workers_fault(d->workers);
    uint32_t before = atomic_load_explicit(shown, memory_order_relaxed);
    uint32_t place = fault ? 1 + workers_fault_place(d->workers) : 0;

    if (place && place != before)
        log_error(NULL, "no attempt can begin at a worker, trying again", LOG_T("reason", fault));
    else if (!place && before)
        log_info(NULL, "the dispatcher reaches all workers again");
    atomic_store_explicit(shown, place, memory_order_relaxed);
    if (place)
        workers_retry(d->workers);
    for (size_t i = 0; i < d->book.runners.n; i++)
        check_runner(d, d->book.runners.at[i], now_ms);
}
