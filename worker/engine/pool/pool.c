/* Calls: waiting for a replica, sent to one, ended. The handling of the replica's answers is in
 * pool_answers.c. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/engine/kv/kv_admission.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/splice.h"
#include "worker/engine/pool/version_round.h"

enum {
    UNTOLD_MS = 50, /* delay before a call is checked again that no engine has said it accepts */
    LOOK_MS = 5,
    START_SLICE_US = 1000,
    INDEXER_CALL_MAX = 1 << 29, /* most bytes of the indexer top-k in all answers of a call */
};

static void run_queue(struct loop_task *t);

void pool_dispatch(struct engine_pool *p)
{
    loop_task_post(p->loop, &p->dispatch, run_queue);
}

/* --- the end of a call --- */

static void drained_check(struct engine_pool *p)
{
    void (*fn)(void *ctx) = p->drained;

    if (p->pause != ENGINE_DRAIN || p->running > 0 || !fn)
        return;
    p->drained = NULL;
    fn(p->drained_ctx);
}

/* Releases the replica's slot. */
static void leave_replica(struct engine_call *c)
{
    halves_end(c);
    replica_end(c->replica);
    c->pool->running--;
    c->attempt = NULL;
    pool_dispatch(c->pool);
}

/* Sets where the call waits from now on; NULL: nowhere. */
static void wait_for(struct engine_call *c, struct replica *home)
{
    if (c->home)
        replica_unqueue(c->home);
    c->home = home;
    if (home)
        replica_queue(home);
}

static void leave_queue(struct engine_call *c)
{
    wait_for(c, NULL);
    fair_take(&c->pool->queue, &c->item);
}

static struct replica *home_of(struct engine_call *c)
{
    struct replica_wish w = {.session_id = c->req.session_id,
                             .kept = admission_home(c->pool, c->req.session_id),
                             .request = &c->req};

    return replicas_home(c->pool->replicas, &w);
}

void pool_count_waiting(struct engine_pool *p)
{
    struct engine_call *c;

    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (c->state == CALL_QUEUED)
            wait_for(c, home_of(c));
    }
}

static void unlink_call(struct engine_call *c)
{
    struct engine_pool *p = c->pool;

    loop_timer_stop(p->loop, &c->timer);
    leave_queue(c);
    if (p->admission)
        admission_left(c);
    if (c->state == CALL_RUNNING)
        leave_replica(c);
    else
        pool_dispatch(p); /* a waiting call may start */
    list_remove(&c->in_pool);
    p->n_calls--;
}

static void free_call(struct engine_call *c)
{
    vec_done(&c->prompt);
    vec_done(&c->stamps);
    splice_done(c->splice);
    arena_done(&c->arena);
    free(c);
}

static void log_failure(const struct engine_call *c, const struct err *e)
{
    struct log_scope scope = {.session = c->req.session_id};

    log_warn(&scope, "engine call failed", LOG_U("call", c->req.call),
             LOG_T("engine", c->replica ? c->replica->target.name : "none"),
             LOG_T("code", err_code(e)), LOG_T("why", e->text), LOG_U("retries", c->retries));
}

uint64_t pool_answer_tokens(const struct engine_call *c)
{
    return (uint64_t)MAX_OF(c->req.sampling->max_tokens, 0);
}

/* Fills in the figures that an engine's refusal lacks and the pool knows. */
static struct err fill_overflow(const struct engine_call *c, const struct err *e)
{
    struct err filled = *e;

    if (e->kind != ERR_CONTEXT_LENGTH)
        return filled;
    if (filled.overflow.prompt == 0)
        filled.overflow.prompt = c->req.prompt.n;
    if (filled.overflow.max == 0)
        filled.overflow.max = engine_pool_context(c->pool);
    return filled;
}

void pool_fail(struct engine_call *c, const struct err *failure)
{
    struct engine_pool *p = c->pool;
    const struct err filled = fill_overflow(c, failure), *e = &filled;

    if (e->kind != ERR_CONTEXT_LENGTH && e->kind != ERR_ENGINE_REFUSED)
        log_failure(c, e);
    if (c->replica)
        replica_failed(c->replica);
    unlink_call(c);
    c->events->failed(c->ctx, e);
    free_call(c);
    drained_check(p);
}

void pool_delivered(struct engine_call *c, const struct engine_result *r)
{
    struct engine_pool *p = c->pool;

    unlink_call(c);
    c->events->done(c->ctx, r);
    free_call(c);
    drained_check(p);
}

/* --- the queue --- */

/* Makes the call wait for a free replica again. */
static void requeue_call(struct engine_call *c);

static void on_again(struct loop_timer *t)
{
    requeue_call(CONTAINER_OF(t, struct engine_call, timer));
}

void pool_again(struct engine_call *c, uint64_t delay_ms)
{
    leave_replica(c);
    c->state = CALL_RESTING;
    c->req.attempt++;
    if (delay_ms == 0)
        requeue_call(c);
    else
        loop_timer_set(c->pool->loop, &c->timer, delay_ms, on_again);
    drained_check(c->pool);
}

uint64_t pool_patience_ms(const struct engine_call *c)
{
    uint64_t all = c->pool->opt.queue_timeout_ms;
    uint64_t spent = c->lost_us > 0 ? (clock_us() - c->lost_us) / 1000 : 0;

    return spent < all ? all - spent : 0;
}

static void run_call(struct engine_call *c, struct replica *r)
{
    struct engine_pool *p = c->pool;
    uint64_t now = clock_us();

    pool_note_home(c, r);
    if (p->admission)
        admission_runs(c, r);
    leave_queue(c);
    loop_timer_stop(p->loop, &c->timer);
    c->state = CALL_RUNNING;
    c->replica = r;
    c->queue_us += now - c->queued_us;
    p->running++;
    /* The size of the block shows whether only some rows were sent, so the size of a row must be
     * known. */
    if (p->expert_row_bytes == 0)
        c->req.experts_from = 0;
    c->req.indexer.all_bytes = p->opt.indexer_max;
    c->req.indexer.max_bytes =
        MIN_OF(p->opt.indexer_max, (uint64_t)INDEXER_CALL_MAX) / MAX_OF(c->req.answers, 1u);
    if (c->stamps.n == 0 && pool_told_version(c).len > 0)
        pool_stamp(c);
    c->req.kv_salt = p->opt.kv_per_version && pool_told_version(c).len > 0
                         ? arena_str(&c->arena, pool_told_version(c))
                         : (struct str){0};
    c->attempt = r->adapter->start(r->impl, &c->req, &pool_answer_events, c);
    halves_start(c);
}

static void on_unsuited(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                  "the engines have changed, and none of them can take this call as it was made "
                  "for those before: send it again");
    pool_fail(c, &e);
}

static void refuse_queued(struct engine_call *c, loop_timer_fn on_time);

static struct replica *pick_replica(struct engine_call *c)
{
    struct replica_wish w = {
        .session_id = c->req.session_id, .avoid = c->avoid, .request = &c->req};

    w.kept = admission_home(c->pool, c->req.session_id);
    return replicas_pick(c->pool->replicas, &w);
}

static void on_untold(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                  "no engine has told within the queue timeout whether it takes adapters");
    pool_fail(c, &e);
}

static void on_unmanned(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    if (engine_pool_check_manned(c->pool, &e))
        pool_fail(c, &e);
    else
        requeue_call(c);
}

/* Sets a call aside that no engine accepts, or that none has said it accepts: other calls must not
 * wait for it. */
static void set_aside(struct engine_call *c)
{
    if (!replicas_suit(c->pool->replicas, &c->req, true)) {
        refuse_queued(c, on_unsuited);
        return;
    }
    if (c->lost_us == 0)
        c->lost_us = clock_us();
    if (pool_patience_ms(c) == 0) {
        refuse_queued(c, on_untold);
        return;
    }
    leave_queue(c);
    c->state = CALL_RESTING;
    loop_timer_set(c->pool->loop, &c->timer, UNTOLD_MS, on_again);
}

/* Takes the slots that the call needs: one, or one at each half. */
static bool begin_at(struct engine_call *c, struct replica *r)
{
    if (!replica_begin(r))
        return false;
    if (!halves_wanted(c, r) || halves_reserve(c))
        return true;
    replica_unbegin(r);
    return false;
}

/* Reports whether the call's owner will cancel it soon, so that it must not start. */
static bool is_unwanted(struct engine_call *c)
{
    if (!c || !c->req.unwanted || !*c->req.unwanted)
        return false;
    leave_queue(c);
    loop_timer_stop(c->pool->loop, &c->timer);
    c->state = CALL_RESTING;
    return true;
}

/* Starts the calls that may start, at the end of a loop iteration. Very many are started over
 * several iterations, because each needs its long prompt written. */
static void run_waiting(struct engine_pool *p)
{
    uint64_t until_us = clock_us() + START_SLICE_US;

    for (bool any = false; p->pause == ENGINE_RUN; any = true) {
        struct fair_item *i = fair_first(&p->queue);
        struct engine_call *c = i ? CONTAINER_OF(i, struct engine_call, item) : NULL;
        struct replica *r;

        if (any && c && clock_us() >= until_us) {
            pool_dispatch(p);
            return;
        }
        if (is_unwanted(c))
            continue;
        r = c ? pick_replica(c) : NULL;
        if (c && p->opt.pool && p->replicas->n == 0) {
            refuse_queued(c, on_unmanned);
            continue;
        }
        if (c && !r && p->replicas->n > 0 && !replicas_suit(p->replicas, &c->req, false)) {
            set_aside(c);
            continue;
        }
        if (!r || !begin_at(c, r))
            return;
        run_call(c, r);
    }
}

/* Checks for slots that other workers have released without a notice. */
static void on_slots_check(struct loop_timer *t)
{
    pool_dispatch(CONTAINER_OF(t, struct engine_pool, look));
}

static void run_queue(struct loop_task *t)
{
    struct engine_pool *p = CONTAINER_OF(t, struct engine_pool, dispatch);

    run_waiting(p);
    if (p->opt.board && p->queue.n > 0 && p->pause == ENGINE_RUN && replicas_any_up(p->replicas))
        loop_timer_set(p->loop, &p->look, LOOK_MS, on_slots_check);
    metrics_move(p->opt.metrics, METRIC_queue_depth, (int64_t)p->queue.n - (int64_t)p->queue_told);
    p->queue_told = p->queue.n;
}

static const char *of_pool(const struct engine_call *c)
{
    return c->pool->opt.pool ? " of pool " : "";
}

static const char *pool_name(const struct engine_call *c)
{
    return c->pool->opt.pool ? c->pool->opt.pool : "";
}

static void on_deadline(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    /* A held call waits as long as the pause lasts, then for the full time again. */
    if (c->pool->pause != ENGINE_RUN) {
        loop_timer_set(c->pool->loop, &c->timer, c->pool->opt.queue_timeout_ms, on_deadline);
        return;
    }
    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_QUEUE_TIME, 0, 1);
    if (replicas_any_up(c->pool->replicas))
        (void)err_set(&e, ERR_OVERLOADED, "no engine%s%s was free within the queue timeout",
                      of_pool(c), pool_name(c));
    else
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                      "no engine%s%s answers, and none came back within the queue timeout",
                      of_pool(c), pool_name(c));
    pool_fail(c, &e);
}

static void on_refused(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_QUEUE, 0, 1);
    (void)err_set(&e, ERR_OVERLOADED, "the engine queue%s%s is full", of_pool(c), pool_name(c));
    pool_fail(c, &e);
}

static void on_session_full(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_SESSION_QUEUE, 0, 1);
    (void)err_set(&e, ERR_OVERLOADED,
                  "%u answers of this session wait for an engine already (--max-session-queue)",
                  c->pool->opt.max_session_queue);
    pool_fail(c, &e);
}

static void requeue_call(struct engine_call *c)
{
    struct engine_pool *p = c->pool;

    c->state = CALL_QUEUED;
    c->queued_us = clock_us();
    fair_push(&p->queue, &c->item, c->req.session_id);
    wait_for(c, home_of(c));
    loop_timer_set(p->loop, &c->timer, MAX_OF(pool_patience_ms(c), (uint64_t)1), on_deadline);
    pool_dispatch(p);
}

/* Refuses a call that is off the queue, or was never in it. Its owner is notified from the loop. */
static void refuse_queued(struct engine_call *c, loop_timer_fn on_time)
{
    leave_queue(c);
    c->state = CALL_RESTING;
    loop_timer_set(c->pool->loop, &c->timer, 1, on_time);
}

void pool_refuse_session(struct engine_call *c)
{
    refuse_queued(c, on_session_full);
}

/* Reports whether the call may wait. If the queue is full, a session with more than its share gives
 * up a place to one with less. */
static bool may_queue_or_refuse(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct str session = c->req.session_id;
    struct fair_item *surplus;

    if (p->opt.max_session_queue > 0 &&
        fair_waiting(&p->queue, session) >= p->opt.max_session_queue) {
        pool_refuse_session(c);
        return false;
    }
    if (p->opt.max_queue == 0 || p->queue.n < p->opt.max_queue)
        return true;
    surplus = fair_surplus(&p->queue, session, p->opt.max_queue);
    refuse_queued(surplus ? CONTAINER_OF(surplus, struct engine_call, item) : c, on_refused);
    return surplus != NULL;
}

/* --- functions for model calls --- */

void pool_queue(struct engine_call *c)
{
    if (may_queue_or_refuse(c))
        requeue_call(c);
}

struct engine_call *engine_start(struct engine_pool *p, const struct engine_request *r,
                                 const struct engine_events *events, void *ctx)
{
    struct engine_call *c = mem_zalloc(sizeof(*c));

    c->pool = p;
    c->req = *r;
    c->req.sampling = c->sampling = arena_alloc(&c->arena, sizeof(*c->sampling));
    *c->sampling = *r->sampling;
    c->splice = ARENA_NEW(&c->arena, struct splice);
    c->splice->held = r->held;
    c->req.session_id = arena_str(&c->arena, r->session_id);
    c->req.lora = r->lora.len ? arena_str(&c->arena, r->lora) : (struct str){0};
    c->n_prompt = r->prompt.n;
    c->events = events;
    c->ctx = ctx;
    c->asked_us = clock_us();
    list_prepend(&p->calls, &c->in_pool);
    p->n_calls++;
    if (!p->admission || !admission_holds(c))
        pool_queue(c);
    return c;
}

void engine_cancel(struct engine_call *c)
{
    struct engine_pool *p;

    if (!c)
        return;
    p = c->pool;
    if (c->state == CALL_RUNNING) {
        c->replica->adapter->cancel(c->attempt);
        replica_aborted(c->replica);
    }
    unlink_call(c);
    free_call(c);
    drained_check(p);
}

void pool_fail_all(struct engine_pool *p)
{
    struct engine_call *c;
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    /* Starts from the first call each time, because an owner's callback may cancel others.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while ((c = LIST_FIRST_OF(&p->calls, struct engine_call, in_pool))) {
        if (c->state == CALL_RUNNING)
            c->replica->adapter->cancel(c->attempt);
        pool_fail(c, &e);
    }
}

void pool_forget(struct engine_pool *p, struct replica *r)
{
    struct engine_call *c;

    version_round_forget(p, r);
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (c->avoid == r)
            c->avoid = NULL;
        if (c->replica == r)
            c->replica = NULL;
        if (c->home == r)
            wait_for(c, NULL);
        halves_forget(c, r);
    }
    admission_forget(p, r);
}
