#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/os/loop.h"
#include "worker/engine/adapter.h"
#include "worker/engine/target.h"

struct replica {
    struct engine_target target;
    const struct engine_adapter *adapter;
    void *impl;
    uint32_t inflight;
    bool up;
};

enum call_state { CALL_QUEUED, CALL_RUNNING };

struct engine_call {
    struct engine_pool *pool;
    struct engine_call *next, *prev; /* in pool->queue or pool->running */
    enum call_state state;
    struct engine_request req; /* strings and prompt are copies in `arena` */
    const struct engine_events *events;
    void *ctx;
    struct replica *replica;
    void *attempt;
    struct loop_timer deadline;
    uint64_t asked_ms, started_ms;
    struct arena arena;
};

struct call_list {
    struct engine_call *first, *last;
    size_t n;
};

struct engine_pool {
    struct loop *loop;
    struct engine_options opt;
    struct arena arena; /* targets and option texts */
    struct replica *replicas;
    size_t n_replicas;
    struct call_list queue, running;
    struct loop_task dispatch;
    enum engine_pause pause;
    void (*drained)(void *ctx);
    void *drained_ctx;
    struct buf version;
    bool has_version;
};

static void list_add(struct call_list *l, struct engine_call *c)
{
    c->next = NULL;
    c->prev = l->last;
    if (l->last)
        l->last->next = c;
    else
        l->first = c;
    l->last = c;
    l->n++;
}

static void list_del(struct call_list *l, struct engine_call *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        l->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    else
        l->last = c->prev;
    l->n--;
}

static struct call_list *list_of(struct engine_call *c)
{
    return c->state == CALL_RUNNING ? &c->pool->running : &c->pool->queue;
}

static void run_queue(struct loop_task *t);

static void drained_check(struct engine_pool *p)
{
    void (*fn)(void *ctx) = p->drained;

    if (p->pause != ENGINE_DRAIN || p->running.n > 0 || !fn)
        return;
    p->drained = NULL;
    fn(p->drained_ctx);
}

/* The call leaves all lists; its memory is the caller's to free. */
static void call_unlink(struct engine_call *c)
{
    struct engine_pool *p = c->pool;

    loop_timer_stop(p->loop, &c->deadline);
    list_del(list_of(c), c);
    if (c->state == CALL_RUNNING) {
        c->replica->inflight--;
        loop_task_post(p->loop, &p->dispatch, run_queue);
    }
}

static void call_free(struct engine_call *c)
{
    arena_done(&c->arena);
    free(c);
}

static void call_fail(struct engine_call *c, const struct err *e)
{
    struct engine_pool *p = c->pool;

    call_unlink(c);
    c->events->failed(c->ctx, e);
    call_free(c);
    drained_check(p);
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct engine_call *c = ctx;

    if (c->req.stream)
        c->events->delta(c->ctx, d);
}

/* What must hold of every answer; says which does not. */
static int result_check(const struct engine_pool *p, const struct engine_result *r, struct err *e)
{
    uint32_t at = 0;

    for (size_t i = 0; p->opt.vocab_size > 0 && i < r->ids.n; i++) {
        if (r->ids.at[i] < 0 || (uint32_t)r->ids.at[i] >= p->opt.vocab_size)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's token %zu is outside the vocabulary", i);
    }
    for (size_t i = 0; i < r->n_versions; i++) {
        if (r->versions[i].start != at || r->versions[i].end < at)
            return err_set(e, ERR_ENGINE_INVALID, "the engine's weight version spans have gaps");
        at = r->versions[i].end;
    }
    if (r->n_versions > 0 && at != r->ids.n)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's weight version spans do not fit");
    return 0;
}

static void on_done(void *ctx, const struct engine_result *given)
{
    struct engine_call *c = ctx;
    struct engine_pool *p = c->pool;
    struct engine_result r = *given;
    struct engine_version stamp;
    struct err e = {0};

    if (result_check(p, &r, &e)) {
        call_fail(c, &e);
        return;
    }
    if (r.n_versions == 0 && p->has_version && r.ids.n > 0) {
        stamp = (struct engine_version){buf_str(&p->version), 0, (uint32_t)r.ids.n};
        r.versions = &stamp;
        r.n_versions = 1;
    }
    r.replica = c->replica->target.name;
    r.queue_us = (c->started_ms - c->asked_ms) * 1000;
    call_unlink(c);
    c->events->done(c->ctx, &r);
    call_free(c);
    drained_check(p);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    call_fail(ctx, e);
}

static const struct engine_attempt_events attempt_events = {on_delta, on_done, on_failed};

/* Highest random weight: a session keeps its replica while that one lives and has room. */
static struct replica *replica_for(struct engine_pool *p, struct str session_id)
{
    struct replica *best = NULL;
    uint64_t best_score = 0;

    for (size_t i = 0; i < p->n_replicas; i++) {
        struct replica *r = &p->replicas[i];
        uint64_t score = str_hash(session_id, i + 1) | 1;

        if (!r->up || (p->opt.max_inflight > 0 && r->inflight >= p->opt.max_inflight))
            continue;
        if (score > best_score) {
            best = r;
            best_score = score;
        }
    }
    return best;
}

static void call_run(struct engine_call *c, struct replica *r)
{
    struct engine_pool *p = c->pool;

    list_del(&p->queue, c);
    c->state = CALL_RUNNING;
    list_add(&p->running, c);
    c->replica = r;
    c->started_ms = loop_clock_ms();
    r->inflight++;
    loop_timer_stop(p->loop, &c->deadline);
    c->attempt = r->adapter->start(r->impl, &c->req, &attempt_events, c);
}

static void run_queue(struct loop_task *t)
{
    struct engine_pool *p = CONTAINER_OF(t, struct engine_pool, dispatch);

    while (p->queue.first && p->pause == ENGINE_RUN) {
        struct replica *r = replica_for(p, p->queue.first->req.session_id);

        if (!r)
            return;
        call_run(p->queue.first, r);
    }
}

static void on_deadline(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, deadline);
    struct err e = {0};

    if (c->pool->pause != ENGINE_RUN) {
        loop_timer_set(c->pool->loop, &c->deadline, c->pool->opt.queue_timeout_ms, on_deadline);
        return;
    }
    (void)err_set(&e, ERR_OVERLOADED, "no engine was free within the queue timeout");
    call_fail(c, &e);
}

static void on_refused(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, deadline);
    struct err e = {0};

    (void)err_set(&e, ERR_OVERLOADED, "the engine queue is full");
    call_fail(c, &e);
}

struct engine_call *engine_start(struct engine_pool *p, const struct engine_request *r,
                                 const struct engine_events *events, void *ctx)
{
    struct engine_call *c = mem_zalloc(sizeof(*c));
    int32_t *ids;
    bool refused = p->opt.max_queue > 0 && p->queue.n >= p->opt.max_queue;

    c->pool = p;
    c->req = *r;
    c->req.session_id = arena_str(&c->arena, r->session_id);
    ids = arena_alloc(&c->arena, r->prompt.n * sizeof(*ids));
    if (r->prompt.n > 0)
        memcpy(ids, r->prompt.at, r->prompt.n * sizeof(*ids));
    c->req.prompt.at = ids;
    c->events = events;
    c->ctx = ctx;
    c->asked_ms = loop_clock_ms();
    list_add(&p->queue, c);
    loop_timer_set(p->loop, &c->deadline, refused ? 1 : MAX_OF(p->opt.queue_timeout_ms, 1),
                   refused ? on_refused : on_deadline);
    if (!refused)
        loop_task_post(p->loop, &p->dispatch, run_queue);
    return c;
}

void engine_cancel(struct engine_call *c)
{
    struct engine_pool *p;

    if (!c)
        return;
    p = c->pool;
    if (c->state == CALL_RUNNING)
        c->replica->adapter->cancel(c->attempt);
    call_unlink(c);
    call_free(c);
    drained_check(p);
}

static int replica_open(struct engine_pool *p, size_t i, struct err *e)
{
    struct replica *r = &p->replicas[i];

    if (engine_target_parse(&p->arena, p->opt.engines[i], &r->target, e))
        return -1;
    r->adapter = engine_adapter_find(r->target.kind);
    if (r->adapter->open(p->loop, &r->target, &p->opt, &r->impl, e))
        return -1;
    r->up = true;
    p->n_replicas = i + 1;
    return 0;
}

int engine_pool_new(struct loop *loop, const struct engine_options *o, struct engine_pool **ret,
                    struct err *e)
{
    struct engine_pool *p = mem_zalloc(sizeof(*p));

    p->loop = loop;
    p->opt = *o;
    if (o->queue_timeout_ms == 0)
        p->opt.queue_timeout_ms = 300000;
    p->replicas = arena_calloc(&p->arena, o->n_engines, sizeof(*p->replicas));
    if (o->n_engines == 0) {
        (void)err_set(e, ERR_CONFIG, "no engine is configured");
        goto out;
    }
    for (size_t i = 0; i < o->n_engines; i++) {
        if (replica_open(p, i, e))
            goto out;
    }
    *ret = p;
    return 0;
out:
    engine_pool_free(p);
    return -1;
}

static void pool_stop_calls(struct engine_pool *p)
{
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    while (p->running.first) {
        struct engine_call *c = p->running.first;

        c->replica->adapter->cancel(c->attempt);
        call_fail(c, &e);
    }
    while (p->queue.first)
        call_fail(p->queue.first, &e);
}

void engine_pool_free(struct engine_pool *p)
{
    if (!p)
        return;
    pool_stop_calls(p);
    loop_task_cancel(p->loop, &p->dispatch);
    for (size_t i = 0; i < p->n_replicas; i++)
        p->replicas[i].adapter->close(p->replicas[i].impl);
    buf_done(&p->version);
    arena_done(&p->arena);
    free(p);
}

void engine_pool_pause(struct engine_pool *p, enum engine_pause mode, void (*drained)(void *ctx),
                       void *ctx)
{
    p->pause = mode;
    p->drained = drained;
    p->drained_ctx = ctx;
    if (mode == ENGINE_RUN)
        loop_task_post(p->loop, &p->dispatch, run_queue);
    else
        drained_check(p);
}

void engine_pool_set_version(struct engine_pool *p, struct str version)
{
    buf_clear(&p->version);
    p->has_version = version.p != NULL;
    buf_add_str(&p->version, version);
}

bool engine_pool_ready(const struct engine_pool *p)
{
    for (size_t i = 0; i < p->n_replicas; i++) {
        if (p->replicas[i].up)
            return true;
    }
    return false;
}

size_t engine_pool_inflight(const struct engine_pool *p)
{
    return p->queue.n + p->running.n;
}

void engine_pool_write(const struct engine_pool *p, struct buf *json)
{
    struct json_out o = json_out_to(json);

    json_out_arr(&o);
    for (size_t i = 0; i < p->n_replicas; i++) {
        const struct replica *r = &p->replicas[i];

        json_out_obj(&o);
        json_out_key(&o, "name");
        json_out_cstr(&o, r->target.name);
        json_out_key(&o, "up");
        json_out_bool(&o, r->up);
        json_out_key(&o, "inflight");
        json_out_i64(&o, r->inflight);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
}
