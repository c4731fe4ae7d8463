/*
 * Moves finalized sessions to the spool (sink.h). A task empties the queue `due`, one session at a
 * time:
 *
 *   sinks_promise    writes the DUE record, before the session's END record
 *   sinks_take       adds the session to `due`
 *   spooling_run     reads the session back if it is not in memory, and writes its export
 *   queue_spooled    queues the file for each target (target_add), and writes the SPOOLED record;
 *                    in a fleet that comes after every target has taken the file
 *
 * A crash in between leaves the DUE record, from which queue_owed fills the queue again. At worst
 * an export is made twice, with the same bytes under the same name. Failed reads and records are
 * tried again every AGAIN_TICKS. A full disk stops the whole queue. A session whose export fails
 * waits in `later`, longer after each failure. If why_not_again gives a reason, it waits for the
 * next start.
 */

#include "worker/sink/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/export/build/options_text.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/sink/sink_target.h"
#include "worker/sink/spooling.h"

enum {
    DELAY_MIN_MS = 1000,
    DELAY_MAX_MS = 30 * 1000,
    STALL_MS = 30 * 1000,
    SWEEP_TICKS = 60,
    AGAIN_TICKS = 10
};

/* Ticks until a failed export is tried again. The time doubles with each failure up to an hour, so
 * that the last attempt is some hours after the first. */
enum { FAILED_TICKS = 5, FAILED_TICKS_MAX = 3600, FAILURES_MAX = 12 };

/* Number of exports that are tried again after a helper thread hung in them. A worker that has lost
 * several helpers retires, and each attempt may cost its successor one more. */
enum { STUCK_AGAIN = 1 };

/* A session whose export was promised. */
struct owed {
    char *id;          /* owned */
    unsigned failures; /* failures of its export */
    /* value of sinks.ticks at which it is tried again; only for entries of `later` */
    uint64_t at_tick;
};

struct sinks {
    struct sinks_env env;
    struct residency *residency; /* owned by env.ledger */
    struct target_env targets_env;
    char *state_dir;
    uint64_t max_waiting;
    uint64_t ticks;
    VEC(struct target *) targets;

    VEC(char *) unrecorded; /* ids of spooled sessions without a SPOOLED record; tried again */
    VEC(struct owed) later; /* sessions that wait for their next attempt */
    VEC(struct owed) due;   /* sessions to spool, in order; those before next_due are gone */
    size_t next_due;
    unsigned n_stuck; /* exports in which a helper thread hung */
    struct spooling spooling;
    struct waiter more; /* the task that spools waits for it if `due` is empty */
    uint64_t delay_ms;
    struct loop_timer retry; /* active while the disk takes nothing */
};

/* Returns the target with that name, or NULL. */
static const struct target *find_target(const struct sinks *k, const char *name)
{
    for (size_t i = 0; k && i < k->targets.n; i++) {
        if (strcmp(k->targets.at[i]->name, name) == 0)
            return k->targets.at[i];
    }
    return NULL;
}

static void on_delivered(void *ctx, struct str id);
static void spool_due(void *ctx);

static int open_spooling(struct sinks *k, struct err *e)
{
    k->spooling = (struct spooling){.calls = k->env.calls,
                                    .residency = k->residency,
                                    .media = k->env.media,
                                    .targets = (const struct target *const *)k->targets.at,
                                    .n_targets = k->targets.n,
                                    .state_dir = k->state_dir};
    return spooling_open(&k->spooling, k->targets_env.durable, e);
}

int sinks_new(const struct sinks_env *env, const struct config *c, const char *state_dir,
              struct sinks **ret, struct err *e)
{
    struct sinks *k;

    *ret = NULL;
    if (c->sink.n == 0)
        return 0;
    if (c->export_retention_ms == 0)
        return err_field(e, "export-retention",
                         "--sink needs --export-retention above 0: what is finalized must stay "
                         "until it is spooled");
    k = mem_zalloc(sizeof(*k));
    k->env = *env;
    k->residency = env->ledger->residency;
    k->state_dir = mem_strdup(state_dir);
    k->delay_ms = DELAY_MIN_MS;
    k->targets_env = (struct target_env){.loop = k->residency->loop,
                                         .tasks = env->tasks,
                                         .page = k->residency->page,
                                         .state_dir = k->state_dir,
                                         .durable = c->durability == DURABILITY_POWER,
                                         .delivered = on_delivered,
                                         .ctx = k};
    sinks_configure(k, c);
    for (size_t i = 0; i < c->sink.n; i++) {
        struct target *t;

        if (target_new(&k->targets_env, c->sink.at[i], &t, e))
            goto out;
        if (find_target(k, t->name)) {
            (void)err_field(e, "sink", "--sink \"%s\" is given twice", c->sink.at[i]);
            target_free(t);
            goto out;
        }
        *vec_push(&k->targets) = t;
    }
    if (open_spooling(k, e))
        goto out;
    (void)task_start(k->env.tasks, STR("sinks"), spool_due, k);
    *ret = k;
    return 0;
out:
    sinks_free(k);
    return -1;
}

static void free_ids(char **ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(ids[i]);
    free(ids);
}

void sinks_free(struct sinks *k)
{
    if (!k)
        return;
    loop_timer_stop(k->residency->loop, &k->retry);
    spooling_done(&k->spooling);
    for (size_t i = 0; i < k->targets.n; i++)
        target_free(k->targets.at[i]);
    vec_done(&k->targets);
    for (size_t i = k->next_due; i < k->due.n; i++)
        free(k->due.at[i].id);
    vec_done(&k->due);
    for (size_t i = 0; i < k->later.n; i++)
        free(k->later.at[i].id);
    vec_done(&k->later);
    free_ids(k->unrecorded.at, k->unrecorded.n);
    free(k->state_dir);
    free(k);
}

void sinks_configure(struct sinks *k, const struct config *c)
{
    if (!k)
        return;
    k->max_waiting = (uint64_t)c->sink_max_waiting;
    k->targets_env.inline_max = (uint64_t)c->sink_inline_max;
    k->targets_env.retention_ms = (uint64_t)c->export_retention_ms;
    k->targets_env.stall_ms = STALL_MS;
}

static bool is_owed(const struct session *s)
{
    struct str options;

    return session_phase(s) == SESSION_FINALIZED && session_sink(s, &options) == SESSION_SINK_DUE;
}

void sinks_take_owed(struct sinks *k, struct str session_id)
{
    bool ended;
    const struct session *s = k ? session_find_any(k->residency->store, session_id, &ended) : NULL;

    if (s && is_owed(s))
        sinks_take(k, session_id);
}

/* Queues the place's finalized sessions whose export was promised but not spooled. If --sink is not
 * set, only logs their number. */
static void queue_owed(struct sinks *k, struct session_store *store, uint32_t index)
{
    uint32_t place;
    size_t n = 0;

    for (struct session *s = session_next(store, NULL); s; s = session_next(store, s)) {
        if (ids_parse(session_id(s), &place) || place != index || !is_owed(s))
            continue;
        sinks_take(k, session_id(s));
        n++;
    }
    if (!k && n > 0)
        log_warn(NULL, "exports were promised to sinks that are not set any more",
                 LOG_U("index", index), LOG_U("sessions", n));
}

static bool has_target(const void *sinks, const char *name)
{
    return find_target(sinks, name) != NULL;
}

int sinks_open_place(struct sinks *k, struct session_store *store, const char *state_dir,
                     uint32_t index, struct err *e)
{
    struct buf path = {0};
    int rc = 0;

    spool_scan(state_dir, index, has_target, k);
    queue_owed(k, store, index);
    if (!k)
        return 0;
    buf_printf(&path, "%s/worker-%u", k->state_dir, index);
    (void)mkdir(path.p, 0700); /* --durability none: no journal has made this folder */
    buf_printf(&path, "/spool");
    if (mkdir(path.p, 0700) && errno != EEXIST)
        rc = err_sys(e, ERR_IO, "cannot make the spool of place %u", index);
    for (size_t i = 0; i < k->targets.n && rc == 0; i++)
        rc = target_scan(k->targets.at[i], index, e);
    buf_done(&path);
    return rc;
}

/* --- from a session to the spool --- */

static void on_retry(struct loop_timer *t)
{
    waiter_wake(&CONTAINER_OF(t, struct sinks, retry)->more);
}

/* Advances the queue after its first session was removed. */
static void advance_due(struct sinks *k)
{
    if (++k->next_due < k->due.n)
        return;
    vec_clear(&k->due);
    k->next_due = 0;
}

/* Removes and frees the first session of the queue. */
static void free_first_due(struct sinks *k)
{
    free(k->due.at[k->next_due].id);
    advance_due(k);
}

/* Moves the first session of the queue to `later` for that many ticks, so that the others need not
 * wait for it. */
static void move_to_later(struct sinks *k, uint64_t ticks)
{
    struct owed *o = vec_push(&k->later);

    *o = k->due.at[k->next_due];
    o->at_tick = k->ticks + ticks;
    advance_due(k);
}

/* Writes the SPOOLED record, after which the session need not be kept for its export. Returns -1
 * and *e if the journal rejects it. */
static int write_spooled(struct sinks *k, struct str id, struct err *e)
{
    struct buf record = {0};
    bool ended;
    struct session *s = session_find_any(k->residency->store, id, &ended);
    int rc;

    if (!s)
        return 0; /* deleted in the meantime */
    session_sink_record(s, SESSION_SINK_SPOOLED, (struct str){0}, clock_wall_ms(), &record);
    rc = ledger_write(k->env.ledger, id, buf_str(&record), (struct ledger_done){0}, e);
    buf_done(&record);
    return rc;
}

/* Writes the SPOOLED record. If that fails, write_missed_records tries again. */
static void record_spooled(struct sinks *k, struct str id)
{
    struct err e = {0};

    if (write_spooled(k, id, &e) == 0)
        return;
    log_warn(&(struct log_scope){.session = id},
             "a spooled export is not noted yet: behind a crash it would come twice",
             LOG_T("error", e.text));
    *vec_push(&k->unrecorded) = mem_strndup(id.p, id.len);
}

/* Reports whether the spool is lost with this node, while the session's records are not. */
static bool is_in_fleet(const struct sinks *k)
{
    return k->env.ledger->copy != NULL;
}

/* In a fleet the record is written when every target has taken the file: until then the next owner
 * of the place makes the export again. */
static void on_delivered(void *ctx, struct str id)
{
    struct sinks *k = ctx;

    for (size_t i = 0; i < k->targets.n; i++)
        if (map_get(&k->targets.at[i]->queued, id))
            return;
    if (is_in_fleet(k))
        record_spooled(k, id);
}

/* Queues the file for every target. */
static void queue_spooled(struct sinks *k, struct str id)
{
    for (size_t i = 0; i < k->targets.n; i++)
        target_add(k->targets.at[i], places_find(k->residency->places, id)->index, id);
    if (!is_in_fleet(k))
        record_spooled(k, id);
}

/* Writes SPOOLED records that the journal rejected earlier. */
static void write_missed_records(struct sinks *k)
{
    size_t was = k->unrecorded.n;
    struct err e = {0};

    while (k->unrecorded.n > 0 &&
           write_spooled(k, str_cstr(k->unrecorded.at[k->unrecorded.n - 1]), &e) == 0)
        free(vec_pop(&k->unrecorded));
    if (k->unrecorded.n < was)
        log_info(NULL, "spooled exports are noted now", LOG_U("sessions", was - k->unrecorded.n));
}

/* Reports whether the export would fail again because of the session's content or its options.
 * Other errors (a helper's timeout, a missing image) may pass. */
static bool is_permanent(enum err_kind kind)
{
    return kind == ERR_UNASSEMBLABLE || kind == ERR_REWARD_MISSING || kind == ERR_INVALID ||
           kind == ERR_BODY_TOO_LARGE;
}

static uint64_t ticks_to_wait(unsigned failures)
{
    uint64_t ticks = FAILED_TICKS;

    while (failures-- > 0 && ticks < FAILED_TICKS_MAX)
        ticks *= 2;
    return MIN_OF(ticks, FAILED_TICKS_MAX);
}

/* Returns why the export is not tried again before the next start, or NULL if it is. */
static const char *why_not_again(struct sinks *k, const struct owed *o, bool stuck,
                                 enum err_kind kind)
{
    if (is_permanent(kind))
        return "what it holds, or its options";
    if (stuck && k->n_stuck++ >= STUCK_AGAIN)
        return "helpers that are lost";
    return o->failures >= FAILURES_MAX ? "it failed too often" : NULL;
}

/* Handles a failed export of the first session: plans the next attempt, or removes it until the
 * next start. */
static void handle_failed_export(struct sinks *k, bool stuck, const struct err *why)
{
    struct owed *o = &k->due.at[k->next_due];
    struct log_scope scope = {.session = str_cstr(o->id)};
    uint64_t ticks = ticks_to_wait(o->failures);
    const char *cause = why_not_again(k, o, stuck, why->kind);

    metrics_count(k->residency->page, METRIC_sink_errors, 1);
    if (cause) {
        log_error(&scope,
                  "a session cannot be exported to the sinks: given up until the next start",
                  LOG_T("reason", why->text), LOG_T("because", cause));
        free_first_due(k);
        return;
    }
    o->failures++;
    log_warn(&scope, "an export for the sinks failed: it is tried again",
             LOG_T("reason", why->text), LOG_U("wait_s", ticks));
    move_to_later(k, ticks);
}

/* Delays the whole queue, because the spool's disk is full or fails. */
static void delay_queue(struct sinks *k, const struct err *why)
{
    metrics_count(k->residency->page, METRIC_sink_errors, 1);
    log_warn(&(struct log_scope){.session = str_cstr(k->due.at[k->next_due].id)},
             "the spool takes nothing: exports wait", LOG_T("reason", why->text));
    loop_timer_set(k->residency->loop, &k->retry, k->delay_ms, on_retry);
    k->delay_ms = MIN_OF(k->delay_ms * 2, DELAY_MAX_MS);
}

/* Handles a helper thread that hung in the first session's export. The task never continues, so
 * another takes its place. */
static void on_lost(void *ctx)
{
    struct sinks *k = ctx;
    struct err e = {0};

    (void)err_set(&e, ERR_INTERNAL, "the request took too long to prepare and was given up");
    spooling_close_file(&k->spooling);
    handle_failed_export(k, true, &e);
    k->more = (struct waiter){0};
    (void)task_start(k->env.tasks, STR("sinks"), spool_due, k);
    waiter_wake(&k->more);
}

/* Handles the end of the first session's export. */
static void end_first(struct sinks *k, enum spooling_end end, const struct err *why)
{
    switch (end) {
    case SPOOLING_WHOLE:
        queue_spooled(k, str_cstr(k->due.at[k->next_due].id));
        free_first_due(k);
        k->delay_ms = DELAY_MIN_MS;
        return;
    case SPOOLING_NO_ROOM:
        delay_queue(k, why);
        return;
    case SPOOLING_FAILED:
        handle_failed_export(k, false, why);
        return;
    case SPOOLING_UNREADABLE:
        metrics_count(k->residency->page, METRIC_sink_errors, 1);
        move_to_later(k, AGAIN_TICKS);
        return;
    case SPOOLING_DELETED:
        free_first_due(k);
        return;
    case SPOOLING_CANCELLED:
        return;
    }
}

/* Runs as long as the worker does. */
static void spool_due(void *ctx)
{
    struct sinks *k = ctx;
    enum spooling_end end;
    struct err e = {0};

    task_on_lost(on_lost, k);
    while (task_wait(&k->more, &e) == 0) {
        while (k->due.n > 0 && !loop_timer_active(&k->retry)) {
            end = spooling_run(&k->spooling, str_cstr(k->due.at[k->next_due].id), &e);
            end_first(k, end, &e);
            if (end == SPOOLING_CANCELLED)
                return;
        }
    }
}

/* Moves sessions whose next attempt is due from `later` to `due`, in order. */
static void requeue_due(struct sinks *k)
{
    size_t kept = 0;

    for (size_t i = 0; i < k->later.n; i++) {
        struct owed o = k->later.at[i];

        if (o.at_tick > k->ticks) {
            k->later.at[kept++] = o;
            continue;
        }
        *vec_push(&k->due) = o;
        waiter_wake(&k->more);
    }
    k->later.n = kept;
}

int sinks_promise(struct sinks *k, struct session *s, const struct export_options *o, struct err *e)
{
    struct buf record = {0}, options = {0};
    struct str id = session_id(s);
    char copy[ID_TEXT_MAX] = "";
    int rc;

    if (!k)
        return 0;
    if (o)
        export_options_text(o, &options);
    memcpy(copy, id.p, MIN_OF(id.len, sizeof(copy) - 1));
    session_sink_record(s, SESSION_SINK_DUE, buf_str(&options), clock_wall_ms(), &record);
    rc = ledger_write(k->env.ledger, str_cstr(copy), buf_str(&record), (struct ledger_done){0}, e);
    buf_done(&record);
    buf_done(&options);
    return rc;
}

void sinks_take(struct sinks *k, struct str session_id)
{
    if (!k)
        return;
    *vec_push(&k->due) = (struct owed){.id = mem_strndup(session_id.p, session_id.len)};
    waiter_wake(&k->more);
}

static bool waits_to_be_spooled(const struct sinks *k, struct str id)
{
    for (size_t i = k->next_due; i < k->due.n; i++)
        if (str_eq_c(id, k->due.at[i].id))
            return true;
    for (size_t i = 0; i < k->later.n; i++)
        if (str_eq_c(id, k->later.at[i].id))
            return true;
    return false;
}

bool sinks_wait_for(const struct sinks *k, const struct session *s)
{
    struct str options;

    return k && session_sink(s, &options) == SESSION_SINK_DUE &&
           waits_to_be_spooled(k, session_id(s));
}

bool sinks_owe(const struct sinks *k, struct str name)
{
    for (size_t i = 0; k && i < k->targets.n; i++)
        if (map_get(&k->targets.at[i]->queued, name))
            return true;
    return k && waits_to_be_spooled(k, name);
}

static bool takes_groups(const struct sinks *k, size_t i)
{
    return k->targets.at[i]->kind->groups;
}

/* Queues a settled group's entry for the targets that accept groups, but only after the entry is
 * written for all of them. If a single target sent it earlier, consumers would get it twice,
 * because the dispatcher sends a failed group again. */
int sinks_give_group(struct sinks *k, struct str group, struct str entry, struct buf *ret_name,
                     struct err *e)
{
    uint32_t index = k ? places_find(k->residency->places, STR(""))->index : 0;
    struct str name;
    size_t n = 0;
    int rc = 0;

    if (target_group_name(group, entry, ret_name, e))
        return -1;
    name = buf_str(ret_name);
    for (; k && n < k->targets.n && rc == 0; n++)
        if (takes_groups(k, n))
            rc = target_write_group(k->targets.at[n], index, name, entry, e);
    for (size_t i = 0; i < n; i++) {
        if (!takes_groups(k, i))
            continue;
        if (rc)
            target_unwrite_group(k->targets.at[i], index, name);
        else
            target_add(k->targets.at[i], index, name);
    }
    return rc;
}

/* --- accounts --- */

/* Returns the bytes of the files in all spools, including pointed files. */
static uint64_t waiting_bytes(const struct sinks *k)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < k->targets.n; i++)
        bytes += k->targets.at[i]->bytes + k->targets.at[i]->pointed_bytes;
    return bytes;
}

bool sinks_full(const struct sinks *k)
{
    return k && waiting_bytes(k) > k->max_waiting;
}

bool sinks_busy(const struct sinks *k)
{
    if (k && k->due.n > 0 && k->delay_ms == DELAY_MIN_MS)
        return true;
    for (size_t i = 0; k && i < k->targets.n; i++) {
        if (k->targets.at[i]->first && !k->targets.at[i]->down)
            return true;
    }
    return false;
}

void sinks_tick(struct sinks *k)
{
    uint64_t n = 0;

    if (!k)
        return;
    for (size_t i = 0; i < k->targets.n; i++) {
        if (k->ticks % SWEEP_TICKS == 0)
            target_sweep(k->targets.at[i]);
        n += k->targets.at[i]->n;
    }
    requeue_due(k);
    if (k->ticks % AGAIN_TICKS == 0)
        write_missed_records(k);
    k->ticks++;
    metrics_set(k->residency->page, METRIC_sink_waiting, n + k->later.n + k->due.n - k->next_due);
    metrics_set(k->residency->page, METRIC_sink_waiting_bytes, waiting_bytes(k));
}
