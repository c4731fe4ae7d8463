/* Opens and closes everything a worker owns besides its sockets (worker_state.h): journals with the
 * sessions replayed from them (worker_replay.c), engines, keys, sinks, helpers.
 *
 * Closing is done in the reverse order. When helper threads do not end, memory that they may still
 * use is not freed (keep). */

#include "worker/worker_state.h"

#include <signal.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/os/helpers.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/control/control.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/setup.h"
#include "worker/sink/sink.h"

enum { LOST_MAX = 4 /* helper threads */ };

/* Does the work of each second. */
void worker_state_tick(struct worker_state *w)
{
    w->ticks++;
    ledger_write_deliveries(w->service.calls.ledger);
    worker_journals_look_over(w);
    w->service.disk_low = worker_disk_low(w);
    if (w->ticks % WORKER_LOOK_OVER_TICKS == 0)
        worker_media_sweep(w);
    worker_folders_tick(w);
    sinks_tick(w->service.sinks);
}

bool worker_state_idle(struct worker_state *w, bool late)
{
    return (late || !sinks_busy(w->service.sinks)) && w->service.calls.n_running == 0 &&
           (late || worker_trace_idle(w)) && (late || worker_fleet_is_sent(w));
}

/* --- start, reload, end --- */

/* Handles helper threads that hang: each keeps its memory, and a processor. After LOST_MAX of them
 * this worker ends in the regular way, and its successor starts with none. */
static void on_lost(void *env, unsigned n)
{
    static bool retires; /* one flag for the process, whichever threads it loses */

    (void)env;
    if (n < LOST_MAX || retires)
        return;
    retires = true;
    log_error(NULL, "too many threads were given up, the worker retires", LOG_U("threads", n));
    (void)kill(getpid(), SIGTERM);
}

/* Opens everything in this order: calls and helpers, keys, engines, sinks, places. Each needs those
 * before it. Origins of sessions are counted when all sessions are known. */
int worker_state_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                      struct err *e)
{
    const struct config *c = w->h->config;
    struct call_env *env = &w->service.calls;
    struct session_defaults d = setup_sessions(c, false);
    struct call_env_parts parts;

    arena_keep_chunks();
    parts = (struct call_env_parts){w->loop, w->h->model, w->h->page, &d,
                                    c->durability != DURABILITY_NONE};
    if (call_env_open(env, &parts, e))
        return -1;
    env->board = w->h->board;
    env->slot = w->h->slot;
    if (call_helpers_begin(env, (unsigned)c->helpers, (uint64_t)c->helper_timeout_ms, on_lost, e) ||
        keys_load(c->admin_key_file, c->key_secret_file, w->h->state_dir, &w->keys, e) ||
        worker_media_open(w, on_lost, e) || worker_trace_open(w, e))
        return -1;
    w->service.heritage = w->h;
    w->service.config = c;
    w->service.keys = w->keys;
    w->service.started_s = clock_wall_ms() / 1000;
    if (worker_engines_open(w, on_health, ctx, e) ||
        sinks_new(&(struct sinks_env){env->ledger, env, env->tasks, w->media}, c, w->h->state_dir,
                  &w->service.sinks, e) ||
        worker_fleet_open(w, e) || worker_state_open_place(w, w->h->index, e))
        return -1;
    for (size_t i = 0; i < w->h->n_adopted; i++) {
        if (worker_state_open_place(w, w->h->adopted[i].index, e))
            return -1;
    }
    if (ledger_check_origins(env->ledger, env->model, c->foreign_sessions == FOREIGN_EXPORT, e))
        return -1;
    session_store_woken(env->store, clock_wall_ms());
    worker_fleet_serve_place(w, w->h->index);
    for (size_t i = 0; i < w->h->n_adopted; i++)
        worker_fleet_serve_place(w, w->h->adopted[i].index);
    return 0;
}

/* Waits for the comparison first: a record that is written before it may get the number of one that
 * only the store has, and a picture may belong to a session that only the store has. */
void worker_state_begin(struct worker_state *w)
{
    worker_fleet_await(w);
    control_sweep_all(&w->service);
    worker_media_sweep(w);
    w->service.disk_low = worker_disk_low(w);
}

/* Applies everything that a reload may change. If the keys cannot be read, the old ones stay
 * valid. */
void worker_state_reload(struct worker_state *w)
{
    const struct config *now = w->h->config;
    struct call_env *env = &w->service.calls;
    struct session_defaults sessions = setup_sessions(now, w->all_text);
    struct keys *fresh;
    struct err e;

    worker_engines_reload(w);
    setup_calls(env, now, w->h->model);
    session_store_configure(env->store, &sessions);
    worker_journals_reload(w);
    sinks_configure(w->service.sinks, now);
    if (keys_load(now->admin_key_file, now->key_secret_file, w->h->state_dir, &fresh, &e)) {
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
        return;
    }
    keys_free(w->keys);
    w->keys = fresh;
    w->service.keys = fresh;
}

unsigned worker_state_stop(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    unsigned lost;

    call_tasks_finish(env, false);
    if (env->engines)
        model_call_end_all(env);
    lost = call_helpers_end(env);
    if (lost == 0)
        call_tasks_finish(env, true);
    return lost;
}

/* Does not free memory that a hung helper thread may still read, with `keep`. */
void worker_state_close(struct worker_state *w, bool keep)
{
    struct call_env *env = &w->service.calls;

    sinks_free(w->service.sinks);
    control_done(&w->service);
    worker_engines_close(w);
    worker_trace_close(w);
    worker_fleet_close(w);
    call_env_close(env, keep);
    vec_done(&w->orphans);
    if (keep)
        return;
    worker_media_close(w);
    keys_free(w->keys);
}
