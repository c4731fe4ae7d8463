#include "worker/worker.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/proc/child.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/residency.h"
#include "worker/service/service.h"
#include "worker/setup.h"
#include "worker/sink/sink.h"
#include "worker/tokens/tokenizer.h"

enum { LOST_MAX = 4 }; /* helper threads */

enum { TICK_MS = 1000, DRAIN_TICK_MS = 20, LOOK_OVER_TICKS = 30, RESERVED_DESCRIPTORS = 64 };

struct worker {
    const struct heritage *h;
    struct child child;
    struct loop *loop;
    struct server *server;
    struct keys *keys;
    struct service service;
    struct loop_timer tick, drain;
    uint64_t drain_until_ms;
    uint64_t ticks;
    struct loop_task compact;
    uint64_t compact_after;            /* tick */
    uint64_t told_records, told_bytes; /* to the counters */
    uint64_t skipped;                  /* replayed records that did not fit */

    struct {
        char **at;
        size_t n, cap;
    } orphans; /* their sessions */
};

/* An upgrade's new binary, and its trial, hear from the environment which tokenizer it was before:
 * with another one the workers would refuse their open sessions, when the old processes are gone.
 */
static int keep_tokenizer(const struct config *c, const struct model *m, struct err *e)
{
    static const char name[] = "RG_TOKENIZER";
    const char *before = getenv(name);
    char now[24];

    (void)snprintf(now, sizeof(now), "%016llx",
                   (unsigned long long)model_info(m)->fingerprint.tokenizer);
    if (before && strcmp(before, now) != 0 && c->foreign_sessions == FOREIGN_REFUSE)
        return err_set(
            e, ERR_CONFIG,
            "an upgrade with another tokenizer (%s, it was %s) would leave open sessions "
            "behind: stop and start, or set --foreign-sessions export",
            now, before);
    if (setenv(name, now, 1))
        return err_sys(e, ERR_IO, "setenv");
    return 0;
}

int worker_load(const struct config *c, const struct model **ret, struct buf *remark, struct err *e)
{
    struct model_options o = setup_model(c);
    struct model *m = NULL;

    if (model_load(&o, &m, e))
        return -1;
    if (keep_tokenizer(c, m, e)) {
        model_free(m);
        return -1;
    }
    buf_printf(remark, "%s, vocabulary %u, PCRE2 JIT %s", model_info(m)->name,
               model_info(m)->vocab_size, tokenizer_jit_works() ? "on" : "off");
    *ret = m;
    return 0;
}

void worker_unload(const struct model *m)
{
    model_free((struct model *)(uintptr_t)m);
}

/* --- places and their journals --- */

/* A record that does not fit: the rest of a session whose beginning was compacted away already
 * (said once, dropped below), or is damaged. */
static void replay_skip(struct worker *w, struct str session_id, const struct err *why)
{
    bool ended = false;

    w->skipped++;
    if (session_find_any(w->service.calls.store, session_id, &ended) || ended)
        log_error(&(struct log_scope){.session = session_id}, "journal: record does not apply",
                  LOG_T("error", why->text));
    else
        *vec_push(&w->orphans) = mem_strndup(session_id.p, session_id.len);
}

static int on_replayed(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct worker *w = ctx;
    struct err bad = {0};
    struct str id;
    uint64_t hash[2], call;

    if (str_eq_c(session_id, JOURNAL_NOTE)) {
        deliveries_replay_note(&w->service.calls.deliveries, payload);
        return 0;
    }
    if (session_apply(w->service.calls.store, payload, &bad)) {
        if (bad.kind == ERR_UNSUPPORTED) { /* a newer program's: not ours to drop */
            *e = bad;
            return -1;
        }
        replay_skip(w, session_id, &bad);
        return 0;
    }
    if (session_record_commits(payload, &id, hash, &call))
        deliveries_open(&w->service.calls.deliveries, id, hash, call);
    return 0;
}

static int open_place(struct worker *w, uint32_t index, struct err *e)
{
    struct call_env *env = &w->service.calls;
    struct journal_options o;
    struct journal_stats stats;
    struct journal *j = NULL;
    char dir[4096];
    uint64_t start_ms = clock_ms();
    int rc;

    if (setup_journal(w->h, index, dir, sizeof(dir), &o))
        return err_set(e, ERR_CONFIG, "the state folder's path is too long");
    session_store_lazy(env->store, true);
    rc = journal_open(w->loop, &o, on_replayed, w, &j, e);
    session_store_lazy(env->store, false);
    if (rc)
        return -1;
    env->journals = mem_realloc_array(env->journals, env->n_journals + 1, sizeof(*env->journals));
    env->journals[env->n_journals++] = (struct place_journal){index, j};
    while (w->orphans.n > 0) {
        char *id = vec_pop(&w->orphans);

        journal_drop_session(j, str_cstr(id));
        free(id);
    }
    journal_stats(j, &stats);
    if (w->skipped > 0)
        log_warn(NULL, "journal: records skipped", LOG_U("records", w->skipped));
    w->skipped = 0;
    metrics_count(env->page, METRIC_journal_replayed, stats.replayed);
    metrics_count(env->page, METRIC_journal_repairs, stats.repairs);
    metrics_count(env->page, METRIC_journal_replay_us, (clock_ms() - start_ms) * 1000);
    if (stats.replayed > 0)
        log_info(NULL, "journal replayed", LOG_U("index", index), LOG_U("records", stats.replayed),
                 LOG_U("ms", clock_ms() - start_ms));
    return sinks_open_place(w->service.sinks, env, w->h->state_dir, index, e);
}

static void on_adopt(struct child *c, const struct heritage_place *place)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);
    struct err e = {0};

    if (open_place(w, place->index, &e)) {
        log_error(NULL, "cannot adopt a place", LOG_U("index", place->index),
                  LOG_T("error", e.text));
        return;
    }
    server_listen(w->server, place->listen_fd);
    child_adopted(c, place->place);
}

/* --- once a second --- */

/* Whether the journal's disk has less room than --journal-min-free. */
static bool disk_low(const struct worker *w)
{
    const struct config *c = w->h->config;
    struct statvfs v;

    if (c->durability == DURABILITY_NONE || statvfs(w->h->state_dir, &v))
        return false;
    return (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)c->journal_min_free;
}

static void publish(struct worker *w)
{
    static const unsigned phases[] = {
        [SESSION_OPEN] = METRIC_PHASE_ACTIVE,
        [SESSION_COMPLETED] = METRIC_PHASE_COMPLETED,
        [SESSION_FINALIZED] = METRIC_PHASE_FINALIZED,
        [SESSION_ABORTED] = METRIC_PHASE_ABORTED,
    };
    struct call_env *env = &w->service.calls;
    struct board_slot *slot = &w->h->board->slots[w->h->slot];
    struct session_totals t;

    session_store_totals(env->store, &t);
    for (int phase = 0; phase < SESSION_PHASES; phase++)
        metrics_set_at(env->page, METRIC_sessions, phases[phase], t.phases[phase]);
    metrics_set(env->page, METRIC_live_tokens, t.tokens);
    metrics_set(env->page, METRIC_session_bytes, t.bytes);
    metrics_set(env->page, METRIC_spilled_bytes, t.evicted_bytes);
    metrics_set(env->page, METRIC_sessions_away, t.evicted);
    atomic_store_explicit(&slot->engines_up, engine_pool_ready(env->engines) ? 1 : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->waiting, (uint32_t)engine_pool_inflight(env->engines),
                          memory_order_relaxed);
}

/* /ready follows the engines at once. */
static void on_health(void *ctx)
{
    publish(ctx);
}

static bool session_needed(void *ctx, struct str id)
{
    bool ended = false;

    return session_find_any(ctx, id, &ended) || ended;
}

/* One step in every turn of the loop, until no journal needs one. */
static void on_compact(struct loop_task *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, compact);
    struct call_env *env = &w->service.calls;
    struct err e = {0};

    for (size_t i = 0; i < env->n_journals; i++) {
        int rc = journal_compact(env->journals[i].journal, false, &e);

        if (rc < 0) {
            log_warn(NULL, "journal: compaction failed", LOG_T("error", e.text));
            w->compact_after = w->ticks + LOOK_OVER_TICKS;
            return;
        }
        if (rc > 0) {
            loop_task_post(w->loop, t, on_compact);
            return;
        }
    }
}

static void look_over_journals(struct worker *w)
{
    struct call_env *env = &w->service.calls;
    struct journal_stats s;
    uint64_t disk = 0, live = 0, records = 0, bytes = 0;

    for (size_t i = 0; i < env->n_journals; i++) {
        if (w->ticks % LOOK_OVER_TICKS == 0)
            (void)journal_drop_absent(env->journals[i].journal, session_needed, env->store);
        journal_stats(env->journals[i].journal, &s);
        disk += s.disk_bytes;
        live += s.live_bytes;
        records += s.records;
        bytes += s.bytes;
    }
    metrics_count(env->page, METRIC_journal_records, records - w->told_records);
    metrics_count(env->page, METRIC_journal_bytes, bytes - w->told_bytes);
    w->told_records = records;
    w->told_bytes = bytes;
    metrics_set(env->page, METRIC_journal_disk, disk);
    metrics_set(env->page, METRIC_journal_live, live);
    if (w->ticks >= w->compact_after)
        loop_task_post(w->loop, &w->compact, on_compact);
}

static void on_tick(struct loop_timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, tick);

    loop_timer_set(w->loop, t, TICK_MS, on_tick);
    w->ticks++;
    service_sweep(&w->service);
    ledger_note_deliveries(&w->service.calls);
    look_over_journals(w);
    w->service.disk_low = disk_low(w);
    sinks_tick(w->service.sinks);
    publish(w);
}

/* --- the end --- */

static void on_drain_tick(struct loop_timer *t)
{
    struct worker *w = CONTAINER_OF(t, struct worker, drain);
    bool late = clock_ms() >= w->drain_until_ms;

    if (late)
        model_call_end_all(&w->service.calls);
    if ((late || !sinks_busy(w->service.sinks)) && server_busy(w->server) == 0 &&
        w->service.calls.n_running == 0) {
        server_stop(w->server);
        return;
    }
    /* One more grace second for the answers that were just ended. */
    if (clock_ms() >= w->drain_until_ms + 1000) {
        server_stop(w->server);
        return;
    }
    loop_timer_set(w->loop, t, DRAIN_TICK_MS, on_drain_tick);
}

static void on_drain(struct child *c)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);

    w->drain_until_ms = clock_ms() + (uint64_t)w->h->config->grace_ms;
    if (!w->server) {
        exit(0); /* still starting: nothing was served */
    }
    waits_drain(&w->service);
    server_drain(w->server);
    loop_timer_set(w->loop, &w->drain, 1, on_drain_tick);
}

static void on_reload(struct child *c)
{
    struct worker *w = CONTAINER_OF(c, struct worker, child);
    const struct config *now = w->h->config;
    struct engine_options engines = setup_engines(now, w->h->model);
    struct session_defaults sessions = setup_sessions(now);
    struct keys *fresh;
    struct err e;

    engine_pool_reload(w->service.calls.engines, &engines);
    setup_calls(&w->service.calls, now, w->h->model);
    session_store_configure(w->service.calls.store, &sessions);
    for (size_t i = 0; i < w->service.calls.n_journals; i++)
        journal_resize(w->service.calls.journals[i].journal, (uint64_t)now->journal_segment_bytes);
    server_limit_bodies(w->server, (size_t)now->max_body_bytes);
    sinks_configure(w->service.sinks, now);
    if (keys_load(now->admin_key_file, now->key_secret_file, w->h->state_dir, &fresh, &e)) {
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
        return;
    }
    keys_free(w->keys);
    w->keys = fresh;
    w->service.keys = fresh;
}

/* --- the start --- */

/* Threads that do not come back keep what they use, and a processor: after some of them this worker
 * ends in good order, and its successor begins with none. */
static void on_lost(void *env, unsigned n)
{
    (void)env;
    if (n != LOST_MAX)
        return;
    log_error(NULL, "too many threads were given up, the worker retires", LOG_U("threads", n));
    (void)kill(getpid(), SIGTERM);
}

static int open_state(struct worker *w, struct err *e)
{
    const struct config *c = w->h->config;
    struct call_env *env = &w->service.calls;
    struct session_defaults d = setup_sessions(c);
    struct engine_options engines = setup_engines(c, w->h->model);

    engines.metrics = w->h->page;
    engines.board = w->h->board;
    engines.slot = w->h->slot;
    engines.on_health = on_health;
    engines.health_ctx = w;
    env->loop = w->loop;
    env->model = w->h->model;
    env->page = w->h->page;
    env->ids = ids_new(e);
    if (!env->ids || keys_load(c->admin_key_file, c->key_secret_file, w->h->state_dir, &w->keys, e))
        return -1;
    env->scratch = model_scratch_new(env->model);
    env->encoder = encoder_new(model_tokenizer(env->model));
    env->store = session_store_new(env->model, &d);
    if (turn_helpers_begin(env, (unsigned)c->helpers, (uint64_t)c->helper_timeout_ms, on_lost, e))
        return -1;
    if (c->durability != DURABILITY_NONE)
        residency_init(env);
    setup_calls(env, c, env->model);
    w->service.heritage = w->h;
    w->service.keys = w->keys;
    w->service.started_s = clock_wall_ms() / 1000;
    if (engine_pool_new(w->loop, &engines, &env->engines, e) ||
        sinks_new(env, c, w->h->state_dir, &w->service.sinks, e) || open_place(w, w->h->index, e))
        return -1;
    for (size_t i = 0; i < w->h->n_adopted; i++) {
        if (open_place(w, w->h->adopted[i].index, e))
            return -1;
    }
    if (ledger_settle_origins(env, c->foreign_sessions == FOREIGN_EXPORT, e))
        return -1;
    session_store_woken(env->store, clock_wall_ms());
    return 0;
}

/* A connection's call takes another descriptor, to its engine; journals and the rest need some,
 * too.
 */
static size_t connection_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return MAX_OF((size_t)r.rlim_cur, (size_t)RESERVED_DESCRIPTORS + 32) / 2 -
           RESERVED_DESCRIPTORS / 2;
}

static int open_server(struct worker *w, struct err *e)
{
    struct server_options o = {.max_body_bytes = (size_t)w->h->config->max_body_bytes,
                               .max_connections = connection_limit()};

    if (server_new(w->loop, &o, dispatch_request, &w->service, &w->server, e))
        return -1;
    server_listen(w->server, w->h->listen_fd);
    for (size_t i = 0; i < w->h->n_adopted; i++)
        server_listen(w->server, w->h->adopted[i].listen_fd);
    return 0;
}

/* How many helpers do not end: then what they may use is not freed. */
static unsigned close_all(struct worker *w)
{
    struct call_env *env = &w->service.calls;
    unsigned lost;

    loop_timer_stop(w->loop, &w->tick);
    loop_timer_stop(w->loop, &w->drain);
    loop_task_cancel(w->loop, &w->compact);
    if (env->engines)
        model_call_end_all(env);
    lost = turn_helpers_end(env);
    server_free(w->server);
    sinks_free(w->service.sinks);
    service_done(&w->service);
    engine_pool_free(env->engines);
    if (env->n_journals > 0)
        ledger_note_deliveries(env);
    vec_done(&w->orphans);
    residency_done(env);
    for (size_t i = 0; i < env->n_journals; i++)
        journal_close(env->journals[i].journal);
    free(env->journals);
    deliveries_done(&env->deliveries);
    if (lost > 0)
        return lost;
    if (env->store)
        session_store_free(env->store);
    encoder_free(env->encoder);
    if (env->scratch)
        model_scratch_free(env->scratch);
    keys_free(w->keys);
    ids_free(env->ids);
    return 0;
}

int worker_run(const struct heritage *h)
{
    struct worker *w = mem_zalloc(sizeof(*w));
    struct err e = {0};
    unsigned lost;
    int status = 1;

    w->h = h;
    /* A call's arena and buffers are some hundred kilobytes and come and go with every call: taken
     * from the heap, not mapped anew (page faults were a fifth of a call's time). */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    (void)signal(SIGPIPE, SIG_IGN);
    w->loop = loop_new(&e);
    if (!w->loop || child_init(&w->child, w->loop, h, on_drain, &e))
        goto out;
    w->child.on_adopt = on_adopt;
    w->child.on_reload = on_reload;
    if (open_state(w, &e) || open_server(w, &e))
        goto out;
    service_sweep(&w->service);
    w->service.disk_low = disk_low(w);
    publish(w);
    loop_timer_set(w->loop, &w->tick, TICK_MS, on_tick);
    child_ready(&w->child, "");
    server_run(w->server);
    status = 0;
out:
    if (status)
        child_failed(h, e.text);
    lost = close_all(w);
    child_done(&w->child);
    if (lost > 0)
        _exit(status); /* the model is not to be freed under them */
    loop_free(w->loop);
    free(w);
    return status;
}
