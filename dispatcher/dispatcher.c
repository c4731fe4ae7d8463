/*
 * The reactions to changes of the book, and the process from start to drain.
 *
 *   start    keys, journal (replay fills the book, without events), server; then sweep and
 *            tellings, which continue what an earlier dispatcher left unfinished. In a fleet the
 *            records that only the store has are read before the server listens (desk_copy.c)
 *   tick     every 250 ms leases of attempts; every second deadlines, deliveries and metrics; every
 *            half minute the journal: free disk, dead records, and a compaction is begun, which
 *            does one step in every loop iteration
 *   drain    polls are answered, the server refuses; it stops when nothing is pending any longer,
 *            or when the grace is over
 */
#include "dispatcher/dispatcher.h"

#include <signal.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/serve/server.h"
#include "dispatcher/desk.h"
#include "dispatcher/workers.h"

enum {
    DRAIN_TICK_MS = 20,
    TICKS_PER_LOOK = 120, /* ticks between two maintenances of the journal */
};

/* --- events of the book --- */

static void on_attempt_over(void *ctx, struct attempt *a)
{
    struct desk *d = ctx;

    closing_start(d, a->session, a->verdict == ROLLOUT_SUCCEEDED ? CLOSING_DELIVER : CLOSING_ABORT,
                  a->rollout->group);
    desk_count_attempt(d, a);
    polls_wake(d);
}

static void on_settled(void *ctx, struct group *g)
{
    struct desk *d = ctx;

    desk_count_settled(d, g);
    log_info(NULL, "group settled", LOG_S("group", g->spec.id),
             LOG_T("state", group_state_names[g->state]), LOG_U("succeeded", g->succeeded),
             LOG_U("n", g->spec.n));
    telling_start(d, g);
    polls_wake(d);
}

/* Ends the sessions of a removed group, which were kept for its trainer. */
static void on_gone(void *ctx, struct group *g)
{
    struct desk *d = ctx;

    groups_removed(d, g);
    tellings_removed(d, g);
    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
        if (g->rollouts[i].state == ROLLOUT_SUCCEEDED && g->rollouts[i].last)
            closing_start(d, g->rollouts[i].last->session, CLOSING_FORGET, g);
    polls_wake(d);
}

static const struct book_events events = {on_attempt_over, on_settled, on_gone};

/* --- the clock --- */

static void on_desk_tick(struct loop_timer *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, tick);
    static unsigned ticks;

    loop_timer_set(d->loop, t, DESK_TICK_MS, on_desk_tick);
    desk_check_leases(d, clock_ms());
    if (ticks % 4 == 0) {
        losses_look(d);
        desk_check_groups(d, clock_ms(), clock_wall_ms());
        desk_check_ways(d, clock_ms());
        desk_publish(d);
    }
    if (ticks++ % TICKS_PER_LOOK == 0)
        desk_maintain_journal(d);
    /* Claims must check again: back-offs end, refusals and pauses of the gateway pass, breakers
     * permit a probe. */
    if (d->book.n_waiting > 0)
        polls_wake(d);
}

/* --- start and end --- */

struct dispatcher {
    struct child child;
    struct desk *desk;
};

static void on_desk_reload(struct child *c)
{
    struct desk *d = CONTAINER_OF(c, struct dispatcher, child)->desk;
    struct err e;

    if (desk_open_keys(d, &e))
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
    journal_resize(d->journal, (uint64_t)d->heritage->config->journal_segment_bytes);
    server_limit_bodies(d->server, (size_t)d->heritage->config->max_body_bytes,
                        (size_t)d->heritage->config->max_worker_body_bytes);
    polls_wake(d);
}

static void on_drain_tick(struct loop_timer *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, drain);
    bool sent = !d->copy || desk_copy_is_sent(d);

    if ((d->busy == 0 && server_busy(d->server) == 0 && sent) || clock_ms() >= d->drain_until_ms)
        server_stop(d->server);
    else
        loop_timer_set(d->loop, t, DRAIN_TICK_MS, on_drain_tick);
}

static void on_desk_drain(struct child *c)
{
    struct desk *d = CONTAINER_OF(c, struct dispatcher, child)->desk;

    if (!d->server)
        exit(0); /* a drain while starting: nothing was served */
    d->draining = true;
    d->drain_until_ms = clock_ms() + (uint64_t)d->heritage->config->grace_ms;
    polls_end(d);
    desk_events_end(d);
    server_drain(d->server);
    loop_timer_set(d->loop, &d->drain, 1, on_drain_tick);
}

static int open_all(struct desk *d, struct err *e)
{
    const struct heritage *h = d->heritage;
    struct server_options o = {.max_body_bytes = (size_t)h->config->max_body_bytes,
                               .max_connections = 8192,
                               .max_unfinished_bytes = (size_t)h->config->max_worker_body_bytes};

    d->ids = ids_new(e);
    d->workers = workers_new(h, d->loop);
    return !d->ids || desk_open_keys(d, e) || desk_copy_open(d, e) || desk_open_journal(d, e) ||
                   server_new(d->loop, &o, desk_handle, d, &d->server, e)
               ? -1
               : 0;
}

/* Begins to serve: the book has all groups. */
static void begin_serving(struct desk *d)
{
    d->book.events = &events;
    d->book.events_ctx = d;
    server_listen(d->server, d->heritage->listen_fd);
    sweep_start(d);
    tellings_resume(d);
    desk_maintain_journal(d);
    desk_publish(d);
    d->leases_ms = clock_ms(); /* the first tick may be late, too */
    loop_timer_set(d->loop, &d->tick, DESK_TICK_MS, on_desk_tick);
}

static void close_desk(struct desk *d)
{
    loop_timer_stop(d->loop, &d->tick);
    loop_timer_stop(d->loop, &d->drain);
    sweep_end(d);
    losses_end(d);
    closings_end(d);
    tellings_end(d);
    server_free(d->server);
    loop_task_cancel(d->loop, &d->wake);
    loop_task_cancel(d->loop, &d->compact);
    workers_free(d->workers);
    desk_copy_close(d);
    if (d->journal)
        journal_close(d->journal);
    d->book.events = NULL;
    book_done(&d->book);
    map_done(&d->claiming);
    map_done(&d->owed); /* all closings and tellings, which use it, are over */
    desk_close_keys(d);
    ids_free(d->ids);
    desk_events_done(d);
}

int dispatcher_run(const struct heritage *h)
{
    struct desk *d = mem_zalloc(sizeof(*d));
    struct dispatcher self = {.desk = d};
    struct err e = {0};
    int status = 1;

    d->heritage = h;
    book_init(&d->book);
    d->book.keeps_gone = h->config->sink.n > 0;
    (void)signal(SIGPIPE, SIG_IGN);
    d->loop = loop_new(&e);
    desk_events_init(d);
    if (!d->loop || child_init(&self.child, d->loop, h, on_desk_drain, &e))
        goto out;
    self.child.on_reload = on_desk_reload;
    if (open_all(d, &e))
        goto out;
    if (d->copy)
        desk_copy_start(d, begin_serving);
    else
        begin_serving(d);
    child_ready(&self.child, "");
    server_run(d->server);
    status = 0;
out:
    if (status)
        child_failed(h, e.text);
    close_desk(d);
    child_done(&self.child);
    loop_free(d->loop);
    free(d);
    return status;
}
