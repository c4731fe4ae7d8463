#include "worker/worker_figures.h"

#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/api/dispatch.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/sink/sink.h"
#include "worker/worker_state.h"

static void publish_bytes(const struct worker_state *w, struct server_bytes b)
{
    const struct call_env *env = &w->service.calls;

    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_BODIES, b.bodies);
    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_ARENAS,
                   atomic_load_explicit(&env->request_bytes, memory_order_relaxed));
    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_ANSWERS, b.answers);
    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_EXPORTS,
                   atomic_load_explicit(&env->export_bytes, memory_order_relaxed));
    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_KNOWN,
                   dispatch_held_bytes(&w->service));
    metrics_set_at(env->page, METRIC_request_memory, METRIC_REQUEST_JOURNALS,
                   worker_state_table_bytes(w));
}

void worker_figures_publish(const struct worker_state *w, struct server_bytes b)
{
    static const unsigned phases[] = {
        [SESSION_OPEN] = METRIC_PHASE_OPEN,
        [SESSION_COMPLETED] = METRIC_PHASE_COMPLETED,
        [SESSION_FINALIZED] = METRIC_PHASE_FINALIZED,
        [SESSION_ABORTED] = METRIC_PHASE_ABORTED,
    };
    const struct call_env *env = &w->service.calls;
    struct board_slot *slot = &w->h->board->slots[w->h->slot];
    struct session_totals t;
    bool full;

    session_store_totals(env->store, &t);
    full = w->service.disk_low || sinks_full(w->service.sinks) ||
           t.tokens > (uint64_t)w->h->config->max_live_tokens;
    atomic_store_explicit(&slot->full, full, memory_order_relaxed);
    for (int phase = 0; phase < SESSION_PHASES; phase++)
        metrics_set_at(env->page, METRIC_sessions, phases[phase], t.phases[phase]);
    metrics_set_at(env->page, METRIC_sessions, METRIC_PHASE_COPYING, t.copying);
    metrics_set(env->page, METRIC_live_tokens, t.tokens);
    metrics_set(env->page, METRIC_session_bytes, t.bytes);
    metrics_set(env->page, METRIC_evicted_bytes, t.evicted_bytes);
    metrics_set(env->page, METRIC_sessions_evicted, t.evicted);
    publish_bytes(w, b);
    atomic_store_explicit(&slot->engines_up, engine_pool_ready(env->engines) ? 1 : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->engines_drift, engine_pool_drifting(env->engines),
                          memory_order_relaxed);
    atomic_store_explicit(&slot->engines_lack, engine_pool_lacks(env->engines),
                          memory_order_relaxed);
    atomic_store_explicit(&slot->engines_basis, engine_pool_bases(env->engines),
                          memory_order_relaxed);
    atomic_store_explicit(&slot->waiting, (uint32_t)engine_pool_inflight(env->engines),
                          memory_order_relaxed);
}
