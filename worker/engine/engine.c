/*
 * The pool as a whole: it is made, reloaded, paused and freed here, and answers what callers ask
 * before a call: can pictures, budgets, grammars, extra fields be had? The calls themselves are in
 * pool.c.
 *
 * A question is answered for all replicas together, since a call may end at any of them: mostly
 * yes only if every one can. While there is no replica (--engine none) nothing is refused for what
 * those to come may be able to do.
 *
 * A pause is on the board, too: a worker that starts later finds there what the admin ordered
 * before (join_pause). What was told of the weights is in a file (weights_file.h).
 */
#include "worker/engine/engine.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "common/proc/metrics.h"
#include "worker/engine/engine_set.h"
#include "worker/engine/engine_target.h"
#include "worker/engine/pool_call.h"
#include "worker/engine/pool_internal.h"
#include "worker/engine/version_round.h"
#include "worker/engine/weights_file.h"
#include "worker/model/model.h"

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

enum logprob_basis replica_basis(const struct replica *r)
{
    return r->adapter->basis ? r->adapter->basis(r->impl) : BASIS_PROCESSED;
}

void pool_changed(void *ctx)
{
    struct engine_pool *p = ctx;

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
    p->replicas.held = mode != ENGINE_RUN;
    metrics_set(p->opt.metrics, METRIC_workers_paused, mode != ENGINE_RUN);
    if (p->opt.board)
        atomic_store_explicit(&p->opt.board->slots[p->opt.slot].paused, mode != ENGINE_RUN,
                              memory_order_relaxed);
}

/* A worker that starts while the others are paused has missed the order. */
static void join_pause(struct engine_pool *p)
{
    if (!p->opt.board || !atomic_load_explicit(&p->opt.board->paused, memory_order_relaxed))
        return;
    log_info(NULL, "model calls are paused: they wait for /admin/resume");
    set_pause(p, ENGINE_HOLD);
}

int engine_pool_new(struct loop *loop, const struct engine_options *o, struct engine_pool **ret,
                    struct err *e)
{
    struct engine_pool *p = mem_zalloc(sizeof(*p));
    const struct model_info *info = o->model ? model_info(o->model) : NULL;

    p->loop = loop;
    p->opt = *o;
    p->opt.ca_file = o->ca_file && *o->ca_file ? arena_cstr(&p->arena, str_cstr(o->ca_file)) : NULL;
    set_defaults(&p->opt);
    if (info)
        p->experts.row_bytes = (size_t)info->moe_layers * info->moe_topk * sizeof(int32_t);
    p->replicas = (struct replicas){.loop = loop,
                                    .changed = pool_changed,
                                    .forget = pool_forget,
                                    .ctx = p,
                                    .metrics = o->metrics};
    if (!o->set && o->n_engines == 0) {
        (void)err_set(e, ERR_CONFIG, "no engine is configured");
        goto out;
    }
    if (replicas_open(&p->replicas, &p->opt, e) < 0)
        goto out;
    p->edition = o->set ? o->set->edition : 0;
    p->opt.set = NULL; /* it was the caller's */
    join_pause(p);
    *ret = p;
    return 0;
out:
    engine_pool_free(p);
    return -1;
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
    rc = loop ? adapter->open(loop, t, o, &replica, e) : -1;
    if (rc == 0)
        adapter->close(replica);
    loop_free(loop);
    return rc;
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

void engine_pool_reload(struct engine_pool *p, const struct engine_options *o)
{
    struct engine_options *mine = &p->opt;

    mine->max_inflight = o->max_inflight;
    mine->max_queue = o->max_queue;
    mine->max_session_queue = o->max_session_queue;
    mine->retries = o->retries;
    mine->retry_5xx = o->retry_5xx;
    mine->routed_experts = o->routed_experts;
    mine->kv_per_version = o->kv_per_version;
    mine->media_drift = p->replicas.lets_drift = o->media_drift;
    mine->resume_aborts = o->resume_aborts;
    mine->timeout_ms = o->timeout_ms;
    mine->idle_timeout_ms = o->idle_timeout_ms;
    mine->connect_timeout_ms = o->connect_timeout_ms;
    mine->queue_timeout_ms = o->queue_timeout_ms;
    mine->health_interval_ms = o->health_interval_ms;
    mine->health_timeout_ms = o->health_timeout_ms;
    set_defaults(mine);
    replicas_reload(&p->replicas);
    pool_dispatch(p);
}

void engine_pool_free(struct engine_pool *p)
{
    if (!p)
        return;
    version_round_stop(p);
    pool_fail_all(p);
    loop_task_cancel(p->loop, &p->dispatch);
    loop_timer_stop(p->loop, &p->look);
    replicas_close(&p->replicas);
    fair_done(&p->queue);
    session_homes_done(&p->homes);
    buf_done(&p->version);
    lora_done(&p->loras);
    arena_done(&p->arena);
    free(p);
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

void engine_pool_set_version(struct engine_pool *p, struct str version)
{
    struct engine_call *c;

    buf_clear(&p->version);
    buf_add_str(&p->version, version);
    if (version.len == 0)
        return;
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (c->req.lora.len == 0 && (c->state == CALL_RUNNING || c->stamps.n > 0))
            pool_stamp(c);
    }
}

static void set_lora(struct engine_pool *p, struct str name, struct str version)
{
    struct engine_call *c;

    (void)lora_set(&p->loras, name, version); /* the file has no more than the book can have */
    if (version.len == 0)
        return;
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (str_eq(c->req.lora, name) && (c->state == CALL_RUNNING || c->stamps.n > 0))
            pool_stamp(c);
    }
}

/* What is told no more goes first: the book has room for all that the file has. */
static void follow_loras(struct engine_pool *p, const struct lora_book *told)
{
    for (size_t i = p->loras.n; i-- > 0;) {
        if (!lora_version(told, buf_str(&p->loras.at[i].name)).p)
            set_lora(p, buf_str(&p->loras.at[i].name), (struct str){0});
    }
    for (size_t i = 0; i < told->n; i++) {
        struct str name = buf_str(&told->at[i].name), version = buf_str(&told->at[i].version);

        if (!str_eq(version, lora_version(&p->loras, name)))
            set_lora(p, name, version);
    }
}

void engine_pool_follow(struct engine_pool *p, const struct weights_told *w)
{
    if (!str_eq(buf_str(&w->version), buf_str(&p->version)))
        engine_pool_set_version(p, buf_str(&w->version));
    follow_loras(p, &w->loras);
}

void engine_pool_write_loras(const struct engine_pool *p, struct buf *json)
{
    struct json_out o = json_out_to(json);

    lora_write(&p->loras, &o);
}

int engine_pool_takes_lora(const struct engine_pool *p, const struct json *extra, struct err *e)
{
    size_t without = 0;

    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct engine_adapter *a = p->replicas.at[i]->adapter;

        if (!a->lora_field)
            return err_field(e, "adapter", "adapter: engines of kind %s have none", a->kind);
        if (json_get(extra, a->lora_field))
            return err_field(e, "adapter", "adapter stands beside engine_extra.%s, which names one",
                             a->lora_field);
        without += replica_lora(p->replicas.at[i]) == LORA_NONE;
    }
    if (without > 0 && without == p->replicas.n)
        return err_field(e, "adapter",
                         "adapter: no engine was started for adapters (--enable-lora): they would "
                         "sample with the weights below it");
    return 0;
}

/* Calls may have gone to any of them: a replica that was busy or down passes them on. One that is
 * down now is told when it is back. */
void engine_pool_end_session(struct engine_pool *p, struct str session_id)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct replica *r = p->replicas.at[i];

        if (r->adapter->end_session)
            r->adapter->end_session(r->impl, session_id);
    }
}

static size_t count_text(const struct engine_pool *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->replicas.n; i++)
        n += p->replicas.at[i]->adapter == &engine_openai;
    return n;
}

bool engine_pool_some_text(const struct engine_pool *p)
{
    return count_text(p) > 0;
}

bool engine_pool_all_text(const struct engine_pool *p)
{
    return p->replicas.n > 0 && count_text(p) == p->replicas.n;
}

bool engine_pool_takes_images(const struct engine_pool *p)
{
    /* Routed experts come with a row for each token that the engine saw. */
    if (p->opt.routed_experts)
        return false;
    for (size_t i = 0; i < p->replicas.n; i++) {
        if (p->replicas.at[i]->adapter->takes_images)
            return true;
    }
    return p->replicas.n == 0; /* those to come */
}

bool engine_pool_images_proven(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        if (!vision_probe_proven(p->replicas.at[i]))
            return false;
    }
    return true;
}

uint32_t engine_pool_drifting(const struct engine_pool *p)
{
    uint32_t n = 0;

    for (size_t i = 0; i < p->replicas.n; i++)
        n += p->replicas.at[i]->vision.state == VISION_DRIFTS;
    return n;
}

int engine_pool_check_images(const struct engine_pool *p, struct err *e)
{
    bool drifts = false;

    for (size_t i = 0; i < p->replicas.n; i++) {
        if (vision_probe_lets(p->replicas.at[i]))
            return 0;
        drifts = drifts || p->replicas.at[i]->vision.state == VISION_DRIFTS;
    }
    if (p->replicas.n == 0)
        return 0; /* those to come */
    return err_field(e, "messages",
                     drifts
                         ? "the chat has images, and the engine of this model makes other tokens "
                           "of them, or of the ids around them, than it is told to"
                         : "the chat has images, and the engine of this model takes text only");
}

bool engine_pool_ready(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        if (replica_serves(p->replicas.at[i]))
            return true;
    }
    return false;
}

size_t engine_pool_inflight(const struct engine_pool *p)
{
    return p->n_calls;
}

uint32_t engine_pool_context(const struct engine_pool *p)
{
    uint32_t least = 0;

    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct replica *r = p->replicas.at[i];
        uint32_t n = r->adapter->context ? r->adapter->context(r->impl) : 0;

        if (n > 0 && (least == 0 || n < least))
            least = n;
    }
    return least;
}

bool engine_pool_constrains(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas.n; i++)
        if (!p->replicas.at[i]->adapter->passes_request)
            return true;
    return p->replicas.n == 0; /* those to come */
}

bool engine_pool_logprobs_own(const struct engine_pool *p, const struct sampling *s)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct replica *r = p->replicas.at[i];

        if (!r->adapter->passes_request && !logprob_basis_is_own(replica_basis(r), s))
            return false;
    }
    return true;
}

static bool lacks_field(const struct engine_pool *p, const char *name)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        const char *cannot = p->replicas.at[i]->adapter->cannot_take;

        if (cannot && str_find(str_cstr(cannot), str_cstr(name), 0) != SIZE_MAX)
            return true;
    }
    return false;
}

const char *engine_pool_cannot_take(const struct engine_pool *p, const struct sampling *s)
{
    const char *name = "";

    for (size_t i = 0; name; i++) {
        if (sampling_extra(s, i, &name) && lacks_field(p, name))
            return name;
    }
    return NULL;
}

bool engine_pool_asks_experts(const struct engine_pool *p)
{
    for (size_t i = 0; p->opt.routed_experts && i < p->replicas.n; i++) {
        if (p->replicas.at[i]->adapter->probe)
            return true;
    }
    return false;
}

bool engine_pool_budgets_thinking(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct replica *r = p->replicas.at[i];

        if (!r->adapter->budgets || !r->adapter->budgets(r->impl))
            return false;
    }
    return true;
}

int engine_pool_tells(const struct engine_pool *p, const char *what, struct err *e)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        const struct engine_adapter *a = p->replicas.at[i]->adapter;

        if (a->cannot_tell && str_find(str_cstr(a->cannot_tell), str_cstr(what), 0) != SIZE_MAX)
            return err_field(e, what, "%s: engines of kind %s do not tell it", what, a->kind);
    }
    return 0;
}

int engine_pool_takes_extra(const struct engine_pool *p, const struct json *extra, struct err *e)
{
    for (size_t i = 0; i < p->replicas.n; i++) {
        if (engine_extra_check(p->replicas.at[i]->adapter, extra, e))
            return -1;
    }
    return 0;
}

bool engine_pool_enforces(const struct engine_pool *p, struct str type)
{
    for (size_t i = 0; type.len && i < p->replicas.n; i++) {
        const char *cannot = p->replicas.at[i]->adapter->cannot_enforce;

        if (cannot && str_find(str_cstr(cannot), type, 0) != SIZE_MAX)
            return false;
    }
    return true;
}
