/*
 * The pool as a whole: construction, reload, pause and end. Its calls are in pool.c, the features
 * of its engines in pool_abilities.c, the trainer's versions in pool_weights.c.
 *
 * A pause is also on the board, so that a worker that starts later finds the admin's order
 * (join_pause).
 */
#include "worker/engine/pool/engine.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/engine_target.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/version_round.h"
#include "worker/text/model/model.h"

enum { QUEUE_TIMEOUT_MS = 300000, INTERVAL_MS = 5000, PROBE_TIMEOUT_MS = 20000 };

const char *logprob_basis_name(enum logprob_basis b)
{
    static const char *const names[] = {"unknown", "raw", "temperature", "processed"};

    return names[b];
}

bool logprob_basis_is_own(enum logprob_basis b, const struct sampling *s)
{
    if (b == BASIS_PROCESSED)
        return true;
    if (b == BASIS_TEMPERATURE)
        return s->temperature > 0 && s->top_p >= 1 && s->min_p <= 0 && s->top_k <= 0 &&
               !s->engine_extra;
    return sampling_changes_nothing(s);
}

void pool_changed(struct engine_pool *p)
{
    pool_count_waiting(p);
    pool_dispatch(p);
    if (p->opt.on_health)
        p->opt.on_health(p->opt.health_ctx);
}

static void set_defaults(struct engine_options *o)
{
    if (o->queue_timeout_ms == 0)
        o->queue_timeout_ms = QUEUE_TIMEOUT_MS;
    if (o->health_interval_ms == 0)
        o->health_interval_ms = INTERVAL_MS;
    if (o->health_timeout_ms == 0)
        o->health_timeout_ms = PROBE_TIMEOUT_MS;
}

static void set_pause(struct engine_pool *p, enum engine_pause mode)
{
    p->pause = mode;
    p->replicas->held = mode != ENGINE_RUN;
    metrics_set(p->opt.metrics, METRIC_workers_paused, mode != ENGINE_RUN);
    if (p->opt.board)
        atomic_store_explicit(&p->opt.board->slots[p->opt.slot].paused, mode != ENGINE_RUN,
                              memory_order_relaxed);
}

/* Pauses the pool if the other workers are paused: a worker that starts then has missed the
 * order. */
static void join_pause(struct engine_pool *p)
{
    if (!p->opt.board || !atomic_load_explicit(&p->opt.board->paused, memory_order_relaxed))
        return;
    log_info(NULL, "model calls are paused: they wait for /admin/resume");
    set_pause(p, ENGINE_HOLD);
}

/* Makes the pool without its engines. */
static struct engine_pool *make(struct loop *loop, const struct engine_options *o)
{
    struct engine_pool *p = mem_zalloc(sizeof(*p));
    const struct model_info *info = o->model ? model_info(o->model) : NULL;

    p->loop = loop;
    p->opt = *o;
    p->opt.set = NULL; /* the set is the caller's */
    p->opt.pool = o->pool ? arena_cstr(&p->arena, str_cstr(o->pool)) : NULL;
    p->opt.ca_file = o->ca_file && *o->ca_file ? arena_cstr(&p->arena, str_cstr(o->ca_file)) : NULL;
    if (o->board)
        board_count_engines(o->board, o->slot);
    set_defaults(&p->opt);
    pool_moves_init(p);
    pool_weights_init(p);
    admission_open(p);
    if (info)
        p->expert_row_bytes = (size_t)info->moe_layers * info->moe_topk * sizeof(int32_t);
    p->replicas = mem_alloc(sizeof(*p->replicas));
    *p->replicas = (struct replicas){.loop = loop, .pool = p, .metrics = o->metrics};
    return p;
}

int engine_pool_new(struct loop *loop, const struct engine_options *o, struct engine_pool **ret,
                    struct err *e)
{
    struct engine_pool *p = make(loop, o);
    struct engine_set all = {0};
    int rc;

    p->first = p;
    p->known = true;
    if (!o->set && o->n_engines == 0) {
        engine_pool_free(p);
        return err_set(e, ERR_CONFIG, "no engine is configured");
    }
    engine_set_of(&all, o->engines, o->set ? 0 : o->n_engines);
    replicas_begin(p->replicas, &p->opt);
    rc = pools_set(p, o->set ? o->set : &all, e);
    engine_set_done(&all);
    if (rc) {
        engine_pool_free(p);
        return -1;
    }
    join_pause(p);
    *ret = p;
    return 0;
}

/* The new pool has no data of the policy's model: its engines have a model of their own. */
struct engine_pool *pool_open_beside(struct engine_pool *first, const char *name)
{
    struct engine_options o = first->opt;
    struct engine_pool *p;

    o.pool = name;
    o.vocab_size = 0;
    o.context_length = 0;
    o.routed_experts = o.kv_per_version = false;
    o.kv_admission = 0;
    o.on_health = NULL;
    p = make(first->loop, &o);
    p->expert_row_bytes = p->indexer_row_bytes = 0;
    p->first = first;
    p->next = first->next;
    first->next = p;
    replicas_begin(p->replicas, &p->opt);
    return p;
}

static int check_target(const struct engine_target *t, const struct engine_options *o,
                        struct err *e)
{
    const struct engine_adapter *adapter = engine_adapter_find(t->kind);
    struct loop *loop;
    void *replica;
    int rc;

    if (adapter->check)
        return adapter->check(t, e);
    loop = loop_new(e);
    rc = loop ? adapter->open(adapter, loop, t, o, &replica, e) : -1;
    if (rc == 0)
        adapter->close(replica);
    loop_free(loop);
    return rc;
}

const char *engine_kind_without(const char *text, const char *what)
{
    const struct engine_adapter *found = NULL;
    struct arena a = {0};
    struct engine_target t;
    struct err e;

    if (engine_target_parse(&a, text, &t, &e) == 0)
        found = engine_adapter_find(t.kind);
    arena_done(&a);
    return found && engine_adapter_lists(found->cannot_tell, what) ? found->kind : NULL;
}

bool engine_takes_ids(const char *text)
{
    const struct engine_adapter *found = NULL;
    struct arena a = {0};
    struct engine_target t;
    struct err e;

    if (engine_target_parse(&a, text, &t, &e) == 0)
        found = engine_adapter_find(t.kind);
    arena_done(&a);
    return found && found->wire && !found->passes_request;
}

int engine_check(const char *text, const struct engine_options *o, struct err *e)
{
    struct arena a = {0};
    struct engine_target t;
    int rc = engine_target_parse(&a, text, &t, e);

    if (rc == 0)
        rc = check_target(&t, o, e);
    arena_done(&a);
    return rc;
}

static void reload_one(struct engine_pool *p, const struct engine_options *o)
{
    struct engine_options *mine = &p->opt;

    mine->max_inflight = o->max_inflight;
    mine->max_queue = o->max_queue;
    mine->max_session_queue = o->max_session_queue;
    mine->retries = o->retries;
    mine->retry_5xx = o->retry_5xx;
    mine->error_texts = o->error_texts;
    mine->routed_experts = o->routed_experts && !mine->pool;
    mine->indexer_max = o->indexer_max;
    mine->kv_per_version = o->kv_per_version && !mine->pool;
    mine->media_drift = p->replicas->lets_drift = o->media_drift;
    mine->resume_aborts = o->resume_aborts;
    mine->timeout_ms = o->timeout_ms;
    mine->idle_timeout_ms = o->idle_timeout_ms;
    mine->connect_timeout_ms = o->connect_timeout_ms;
    mine->queue_timeout_ms = o->queue_timeout_ms;
    mine->health_interval_ms = o->health_interval_ms;
    mine->health_timeout_ms = o->health_timeout_ms;
    set_defaults(mine);
    replicas_reload(p->replicas);
    pool_dispatch(p);
}

void engine_pool_reload(struct engine_pool *p, const struct engine_options *o)
{
    for (; p; p = p->next)
        reload_one(p, o);
}

static void free_one(struct engine_pool *p)
{
    version_round_stop(p);
    pool_fail_all(p);
    loop_task_cancel(p->loop, &p->dispatch);
    loop_timer_stop(p->loop, &p->look);
    admission_done(p);
    replicas_close(p->replicas);
    free(p->replicas);
    fair_done(&p->queue);
    pool_moves_done(p);
    buf_done(&p->version);
    pool_weights_done(p);
    ids_free(p->ids);
    arena_done(&p->arena);
    free(p);
}

void engine_pool_free(struct engine_pool *p)
{
    while (p) {
        struct engine_pool *next = p->next;

        free_one(p);
        p = next;
    }
}

void engine_pool_pause(struct engine_pool *p, enum engine_pause mode, void (*drained)(void *ctx),
                       void *ctx)
{
    set_pause(p, mode);
    if (p->opt.board)
        atomic_store_explicit(&p->opt.board->paused, mode != ENGINE_RUN, memory_order_relaxed);
    p->drained = drained;
    p->drained_ctx = ctx;
    if (mode == ENGINE_RUN) {
        pool_dispatch(p);
    } else if (mode == ENGINE_DRAIN && p->running == 0 && drained) {
        p->drained = NULL;
        drained(ctx);
    }
}

/* Notifies every replica, because calls may have gone to any of them when others were busy or down.
 * A replica that is down now is notified when it is up again. */
void engine_pool_end_session(struct engine_pool *p, struct str session_id)
{
    if (p->admission)
        admission_end_session(p, session_id);
    for (size_t i = 0; i < p->replicas->n; i++) {
        const struct replica *r = p->replicas->at[i];

        if (r->adapter->end_session)
            r->adapter->end_session(r->impl, session_id);
    }
}

void engine_pool_complete_session(struct engine_pool *p, struct str session_id)
{
    if (p->admission)
        admission_complete_session(p, session_id);
}

bool engine_pool_ready(const struct engine_pool *p)
{
    return replicas_any_serves(p->replicas);
}

size_t engine_pool_inflight(const struct engine_pool *p)
{
    size_t n = 0;

    for (; p; p = p->next)
        n += p->n_calls;
    return n;
}
