/*
 * Three things: desk_write, which every change passes; what the dispatcher does when the book
 * tells of a change; and the process, from start to drain.
 *
 *   start    keys, journal (replay fills the book, without events), server; then sweep and
 *            tellings, which take up what a dispatcher before this one left undone
 *   tick     every 250 ms leases of attempts; every second deadlines, deliveries and metrics; every
 *            half minute the journal: free disk, records nobody needs, compaction
 *   drain    polls are answered, the server refuses; it stops when nothing is under way any more,
 *            or when the grace is over
 *
 * A group's records stay in the journal while the book has it or sinks are owed some of it
 * (`owed`).
 */
#include "dispatcher/dispatcher.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/serve/server.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/workers.h"

enum {
    TICK_MS = 250,
    DRAIN_TICK_MS = 20,
    LOST_AGAIN_MS = 1000,
    TICKS_PER_LOOK = 120,  /* at the journal's needs */
    JOURNAL_WAIT_MS = 5000 /* for a dispatcher that is being replaced */
};

/* --- writing --- */

/* How many things of a group sinks still have to get: sessions (closings.c), its entry
 * (tellings.c). Its records are kept until then. */
struct debt {
    size_t n;
    size_t len;
    char group[];
};

void desk_owe(struct desk *d, struct str group)
{
    struct debt *debt = map_get(&d->owed, group);

    if (!debt) {
        debt = mem_zalloc(sizeof(*debt) + group.len);
        debt->len = group.len;
        memcpy(debt->group, group.p, group.len);
        (void)map_set(&d->owed, str_of(debt->group, debt->len), debt);
    }
    debt->n++;
}

void desk_paid(struct desk *d, struct str group)
{
    struct debt *debt = map_get(&d->owed, group);

    if (debt && --debt->n == 0)
        free(map_take(&d->owed, group));
}

/* Whether the journal must keep the group's records. */
static bool group_needed(void *ctx, struct str id)
{
    const struct desk *d = ctx;

    return book_group(&d->book, id) || book_gone_group(&d->book, id) || map_get(&d->owed, id);
}

static void events_note(struct desk *d, struct str id)
{
    const struct group *g = book_group(&d->book, id);

    if (g)
        desk_events_group(d, g);
}

int desk_write(struct desk *d, struct str group, struct str record, void (*done)(void *ctx),
               void *ctx, struct err *e)
{
    char id[GROUP_ID_MAX + 1] = "";
    struct err bad;
    int rc;

    memcpy(id, group.p, group.len); /* the group may be gone once the record is applied */
    rc = journal_append(d->journal, group, record, done, ctx, e);
    if (rc < 0)
        return -1;
    if (feed_watched(&d->events))
        events_note(d, str_cstr(id));
    if (book_apply(&d->book, record, &bad)) /* a bug: what was written is not what is there */
        log_error(NULL, "a record does not apply", LOG_T("group", id), LOG_T("error", bad.text));
    if (!group_needed(d, str_cstr(id)))
        journal_drop_session(d->journal, str_cstr(id));
    if (feed_watched(&d->events))
        events_note(d, str_cstr(id)); /* a group that was not there before */
    return rc;
}

/* --- what the book tells --- */

static unsigned queue_label(const struct desk *d, const struct queue *q)
{
    return metrics_name(d->heritage->metrics, METRIC_NAMES_QUEUE,
                        q ? str_cstr(q->name) : STR("(none)"));
}

static unsigned runner_label(const struct desk *d, const struct runner *r)
{
    return metrics_name(d->heritage->metrics, METRIC_NAMES_RUNNER, str_cstr(r->name));
}

/* The seconds that an executor told for a part of its attempt. */
static void observe_timing(struct desk *d, const struct json *timings, const char *name,
                           enum metric id)
{
    double s = 0;

    if (json_to_double(json_get(timings, name), &s) == 0 && s > 0 && s < 1e9)
        metrics_observe_us(d->heritage->page, id, (uint64_t)(s * 1e6));
}

static void count_attempt(struct desk *d, const struct attempt *a)
{
    const char *text = a->rollout->result.timings;
    struct arena arena = {0};
    const struct json *timings = NULL;
    struct err e;

    metrics_count_at(d->heritage->page, METRIC_attempts, runner_label(d, a->rollout->group->runner),
                     a->outcome, 1);
    if (text && json_parse(&arena, str_cstr(text), &timings, &e) == 0) {
        observe_timing(d, timings, "run", METRIC_attempt_run);
        observe_timing(d, timings, "score", METRIC_attempt_score);
    }
    arena_done(&arena);
}

static void on_attempt_over(void *ctx, struct attempt *a)
{
    struct desk *d = ctx;

    closing_start(d, a->session, a->verdict == ROLLOUT_SUCCEEDED ? CLOSING_DELIVER : CLOSING_ABORT,
                  a->rollout->group);
    count_attempt(d, a);
    polls_wake(d);
}

static void on_settled(void *ctx, struct group *g)
{
    struct desk *d = ctx;

    metrics_count_at(d->heritage->page, METRIC_groups_settled, queue_label(d, g->queue),
                     g->state - GROUP_FINISHED, 1);
    if (g->first_end_at_ms)
        metrics_observe_us(d->heritage->page, METRIC_group_tail,
                           (g->settled_at_ms - g->first_end_at_ms) * 1000);
    log_info(NULL, "group settled", LOG_S("group", g->spec.id),
             LOG_T("state", group_state_names[g->state]), LOG_U("succeeded", g->succeeded),
             LOG_U("n", g->spec.n));
    telling_start(d, g);
    polls_wake(d);
}

/* Its sessions were held for the trainer; nobody will ask for them again. */
static void on_gone(void *ctx, struct group *g)
{
    struct desk *d = ctx;

    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++)
        if (g->rollouts[i].state == ROLLOUT_SUCCEEDED && g->rollouts[i].last)
            closing_start(d, g->rollouts[i].last->session, CLOSING_FORGET, g);
    polls_wake(d);
}

static const struct book_events events = {on_attempt_over, on_settled, on_gone};

/* --- time --- */

static void check_leases(struct desk *d, uint64_t now_ms)
{
    uint64_t lease_ms = (uint64_t)d->heritage->config->attempt_lease_ms;
    struct attempt *a, *next;

    for (a = LIST_FIRST_OF(&d->book.running, struct attempt, entry); a; a = next) {
        next = LIST_NEXT_OF(&d->book.running, a, struct attempt, entry);
        if (a->lease_due_ms == 0)
            a->lease_due_ms = now_ms + lease_ms; /* after a replay */
        if (a->ending || now_ms < a->lease_due_ms)
            continue;
        a->lease_due_ms = now_ms + LOST_AGAIN_MS; /* where the end cannot be recorded */
        ends_lost(d, a, "the executor's lease ran out", clock_wall_ms());
        /* From the start: a group that settles ends others, too. */
        next = LIST_FIRST_OF(&d->book.running, struct attempt, entry);
    }
}

static void write_plain(struct desk *d, enum record_kind kind, struct group *g)
{
    struct buf record = {0};
    struct err e;

    record_plain(kind, g->spec.id, clock_wall_ms(), &record);
    if (desk_write(d, g->spec.id, buf_str(&record), NULL, NULL, &e) < 0)
        log_warn(NULL, "a change cannot be recorded", LOG_T("error", e.text));
    buf_done(&record);
    polls_wake(d);
}

/* Deadlines, deliveries whose lease is over, and settled groups of no queue that nobody removes. */
static void check_groups(struct desk *d, uint64_t now_ms, uint64_t wall_ms)
{
    uint64_t keep_ms = (uint64_t)d->heritage->config->export_retention_ms;
    struct group *g, *next;

    LIST_EACH_SAFE(&d->book.all, g, next, struct group, all_entry) {
        if (g->delivery == DELIVERY_TAKEN && g->taken_until_ms == 0)
            g->taken_until_ms = now_ms + g->lease_ms; /* after a replay */
        if (g->delivery == DELIVERY_TAKEN && now_ms >= g->taken_until_ms) {
            metrics_count(d->heritage->page, METRIC_redelivered, 1);
            write_plain(d, RECORD_RETURNED, g);
        } else if (!group_settled(g) && g->spec.deadline_ms && !g->overdue &&
                   wall_ms >= g->submitted_at_ms + g->spec.deadline_ms) {
            write_plain(d, RECORD_DEADLINE, g);
        } else if (group_settled(g) && !g->queue && wall_ms >= g->settled_at_ms + keep_ms) {
            write_plain(d, RECORD_ACKED, g);
        }
    }
}

static void look_after_journal(struct desk *d)
{
    struct journal_stats s;
    struct statvfs v;
    struct err e;

    d->disk_low =
        statvfs(d->heritage->state_dir, &v) == 0 &&
        (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)d->heritage->config->journal_min_free;
    (void)journal_drop_absent(d->journal, group_needed, d);
    while (journal_compact(d->journal, false, &e) > 0)
        ;
    journal_stats(d->journal, &s);
    metrics_set(d->heritage->page, METRIC_dispatcher_journal, s.disk_bytes);
}

/* Names beyond the label's last value share it: their sum is shown. */
static void publish_queues(struct desk *d)
{
    uint64_t n[METRIC_QUEUE_VALUES][GROUP_STATES] = {0};
    bool shown[METRIC_QUEUE_VALUES] = {false};
    const struct group *g;

    for (size_t i = 0; i < d->book.queues.n; i++) {
        const struct queue *q = d->book.queues.at[i];
        unsigned v = queue_label(d, q);

        shown[v] = true;
        for (int s = 0; s < GROUP_STATES; s++)
            n[v][s] += q->n_groups[s];
    }
    for (unsigned v = 0; v < METRIC_QUEUE_VALUES; v++)
        for (unsigned s = 0; shown[v] && s < GROUP_STATES; s++)
            metrics_set_cell(d->heritage->page, METRIC_groups, v, s, n[v][s]);
    g = LIST_FIRST_OF(&d->book.all, struct group, all_entry);
    metrics_set(d->heritage->page, METRIC_queue_oldest,
                g && clock_wall_ms() > g->submitted_at_ms
                    ? (clock_wall_ms() - g->submitted_at_ms) * 1000
                    : 0);
}

static void publish_runners(struct desk *d)
{
    uint64_t running[METRIC_RUNNER_VALUES] = {0}, slots[METRIC_RUNNER_VALUES] = {0};
    bool shown[METRIC_RUNNER_VALUES] = {false}, open[METRIC_RUNNER_VALUES] = {false};

    for (size_t i = 0; i < d->book.runners.n; i++) {
        const struct runner *r = d->book.runners.at[i];
        unsigned v = runner_label(d, r);

        shown[v] = true;
        running[v] += r->running;
        slots[v] += r->slots;
        open[v] |= r->blocked;
    }
    for (unsigned v = 0; v < METRIC_RUNNER_VALUES; v++) {
        if (!shown[v])
            continue;
        metrics_set_at(d->heritage->page, METRIC_attempts_running, v, running[v]);
        metrics_set_at(d->heritage->page, METRIC_slots, v, slots[v]);
        metrics_set_at(d->heritage->page, METRIC_breaker_open, v, open[v]);
    }
}

static void publish(struct desk *d)
{
    publish_queues(d);
    publish_runners(d);
}

static void on_tick(struct loop_timer *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, tick);
    static unsigned ticks;

    loop_timer_set(d->loop, t, TICK_MS, on_tick);
    check_leases(d, clock_ms());
    if (ticks % 4 == 0) {
        check_groups(d, clock_ms(), clock_wall_ms());
        publish(d);
    }
    if (ticks++ % TICKS_PER_LOOK == 0)
        look_after_journal(d);
    /* Back-offs end, refusals and pauses of the gateway pass, breakers let a probe through. */
    if (d->book.n_waiting > 0)
        polls_wake(d);
}

/* --- start and end --- */

static int on_replayed(void *ctx, struct str id, struct str payload, struct err *e)
{
    struct desk *d = ctx;
    struct err bad;

    if (book_apply(&d->book, payload, &bad) == 0)
        return 0;
    if (bad.kind == ERR_UNSUPPORTED) { /* a newer program's: not ours to drop */
        *e = bad;
        return -1;
    }
    log_warn(NULL, "journal: record does not apply", LOG_S("group", id), LOG_T("error", bad.text));
    return 0;
}

static int open_journal(struct desk *d, struct err *e)
{
    static const enum journal_durability levels[] = {
        [DURABILITY_NONE] = JOURNAL_NONE,
        [DURABILITY_PROCESS] = JOURNAL_PROCESS,
        [DURABILITY_POWER] = JOURNAL_POWER,
    };
    const struct heritage *h = d->heritage;
    char dir[4096];
    struct journal_options o = {.dir = dir,
                                .durability = levels[h->config->durability],
                                .segment_bytes = (uint64_t)h->config->journal_segment_bytes,
                                .wait_ms = JOURNAL_WAIT_MS,
                                .metrics = h->page};
    uint64_t start_ms = clock_ms();
    int n = snprintf(dir, sizeof(dir), "%s/dispatcher", h->state_dir);

    if (n < 0 || (size_t)n >= sizeof(dir))
        return err_set(e, ERR_CONFIG, "the state folder's path is too long");
    if (journal_open(d->loop, &o, on_replayed, d, &d->journal, e))
        return -1;
    if (d->book.next_seq > 1)
        log_info(NULL, "groups replayed", LOG_U("groups", d->book.groups.n),
                 LOG_U("ms", clock_ms() - start_ms));
    d->book.events = &events;
    d->book.events_ctx = d;
    return 0;
}

static int open_keys(struct desk *d, struct err *e)
{
    const struct config *c = d->heritage->config;
    struct keys *fresh;
    char key[KEY_TEXT_MAX] = "";

    if (keys_load(c->admin_key_file, c->key_secret_file, d->heritage->state_dir, &fresh, e))
        return -1;
    keys_free(d->keys);
    d->keys = fresh;
    if (keys_required(fresh))
        keys_make_service(fresh, key);
    workers_key(d->workers, key);
    return 0;
}

static void on_reload(struct child *c)
{
    struct desk *d = CONTAINER_OF(c, struct desk, child);
    struct err e;

    if (open_keys(d, &e))
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
    journal_resize(d->journal, (uint64_t)d->heritage->config->journal_segment_bytes);
    server_limit_bodies(d->server, (size_t)d->heritage->config->max_body_bytes,
                        (size_t)d->heritage->config->max_worker_body_bytes);
    polls_wake(d);
}

static void on_drain_tick(struct loop_timer *t)
{
    struct desk *d = CONTAINER_OF(t, struct desk, drain);

    if ((d->busy == 0 && server_busy(d->server) == 0) || clock_ms() >= d->drain_until_ms)
        server_stop(d->server);
    else
        loop_timer_set(d->loop, t, DRAIN_TICK_MS, on_drain_tick);
}

static void on_drain(struct child *c)
{
    struct desk *d = CONTAINER_OF(c, struct desk, child);

    if (!d->server)
        exit(0); /* still starting: nothing was served */
    d->draining = true;
    d->drain_until_ms = clock_ms() + (uint64_t)d->heritage->config->grace_ms;
    polls_end(d);
    feed_end(&d->events);
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
    if (!d->ids || open_keys(d, e) || open_journal(d, e) ||
        server_new(d->loop, &o, desk_handle, d, &d->server, e))
        return -1;
    server_listen(d->server, h->listen_fd);
    return 0;
}

static void close_all(struct desk *d)
{
    loop_timer_stop(d->loop, &d->tick);
    loop_timer_stop(d->loop, &d->drain);
    sweep_end(d);
    closings_end(d);
    tellings_end(d);
    server_free(d->server);
    loop_task_cancel(d->loop, &d->wake);
    workers_free(d->workers);
    if (d->journal)
        journal_close(d->journal);
    d->book.events = NULL;
    book_done(&d->book);
    map_done(&d->claiming);
    map_done(&d->owed); /* closings and tellings, which owed, are over */
    keys_free(d->keys);
    ids_free(d->ids);
}

int dispatcher_run(const struct heritage *h)
{
    struct desk *d = mem_zalloc(sizeof(*d));
    struct err e = {0};
    int status = 1;

    d->heritage = h;
    book_init(&d->book);
    d->book.keeps_gone = h->config->sink.n > 0;
    (void)signal(SIGPIPE, SIG_IGN);
    d->loop = loop_new(&e);
    desk_events_init(d);
    if (!d->loop || child_init(&d->child, d->loop, h, on_drain, &e))
        goto out;
    d->child.on_reload = on_reload;
    if (open_all(d, &e))
        goto out;
    sweep_start(d);
    tellings_resume(d);
    look_after_journal(d);
    publish(d);
    loop_timer_set(d->loop, &d->tick, TICK_MS, on_tick);
    child_ready(&d->child, "");
    server_run(d->server);
    status = 0;
out:
    if (status)
        child_failed(h, e.text);
    close_all(d);
    child_done(&d->child);
    loop_free(d->loop);
    free(d);
    return status;
}
