/* Calls: waiting, running at a replica, waiting for another try; and what goes back up. */
#include <errno.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/proc/metrics.h"
#include "worker/engine/engine_pool.h"
#include "worker/engine/kv_admission.h"
#include "worker/engine/pool_call.h"
#include "worker/engine/pool_internal.h"
#include "worker/engine/version_round.h"

enum {
    RETRY_MS = 50,  /* before the first repetition, doubled for each further one */
    RESUME_MS = 20, /* likewise, for engines that abort without having written anything */
    RESUME_MAX_MS = 2000,
    LOOK_MS = 5,
    START_SLICE_US = 1000,
    ANEW_MAX = 3, /* times one call is asked differently */
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

/* Gives the replica's slot back. */
static void leave_replica(struct engine_call *c)
{
    replica_end(c->replica);
    c->pool->running--;
    c->attempt = NULL;
    pool_dispatch(c->pool);
}

/* Says where it waits from now on; NULL: nowhere. */
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

    return replicas_home(&c->pool->replicas, &w);
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
        pool_dispatch(p); /* one less waits */
    list_remove(&c->in_pool);
    p->n_calls--;
}

static void free_call(struct engine_call *c)
{
    vec_done(&c->prompt);
    vec_done(&c->stamps);
    splice_done(&c->splice);
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

void pool_fail(struct engine_call *c, const struct err *e)
{
    struct engine_pool *p = c->pool;

    if (e->kind != ERR_CONTEXT_LENGTH && e->kind != ERR_ENGINE_REFUSED)
        log_failure(c, e);
    if (c->replica)
        replica_failed(c->replica);
    unlink_call(c);
    c->events->failed(c->ctx, e);
    free_call(c);
    drained_check(p);
}

/* --- what the replica says --- */

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct engine_call *c = ctx;

    replica_alive(c->replica);
    if (c->first_us == 0)
        c->first_us = clock_us();
    c->given += (uint32_t)d->ids.n;
    c->told = c->told || c->req.stream;
    if (c->req.stream)
        c->events->delta(c->ctx, d);
}

static bool is_banned(const struct engine_call *c, int32_t id)
{
    for (size_t i = 0; i < c->req.banned.n; i++)
        if (c->req.banned.at[i] == id)
            return true;
    return false;
}

/* What must hold of every piece; says which does not. */
static int check_piece(const struct engine_call *c, const struct engine_result *r, struct err *e)
{
    const struct engine_pool *p = c->pool;
    uint32_t at = 0;
    uint32_t vocab = p->opt.any_text && engine_pool_all_text(p) ? 0 : p->opt.vocab_size;

    for (size_t i = 0; vocab > 0 && i < r->ids.n; i++) {
        if (r->ids.at[i] < 0 || (uint32_t)r->ids.at[i] >= vocab)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's token %zu, id %d, is outside the vocabulary", i,
                           r->ids.at[i]);
    }
    for (size_t i = 0; c->req.banned.n > 0 && i < r->ids.n; i++) {
        if (is_banned(c, r->ids.at[i]))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine sampled id %d, which stands for a picture", r->ids.at[i]);
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

/* The block of the last piece counts for the whole answer: it was asked for from the call's own
 * start. */
static int check_experts(struct engine_call *c, struct engine_result *r, struct err *e)
{
    struct experts_block b = {.bytes = r->experts.len,
                              .tokens =
                                  c->n_prompt + (c->splice.pieces > 0 ? c->splice.ids.n : r->ids.n),
                              .from = c->req.experts_from};
    int rc;

    if (!r->experts.p)
        return 0;
    rc = experts_check(&c->pool->experts, &b, e);
    if (rc > 0)
        r->experts = (struct str){0};
    r->experts_from = b.from;
    r->experts_rows = b.rows;
    return rc < 0 ? -1 : 0;
}

/* Whether somebody has set the version: engines call it "default" before. */
static bool is_set(struct str version)
{
    return version.len > 0 && !str_eq_c(version, "default");
}

static bool reports_version(const struct engine_result *r)
{
    for (size_t i = 0; i < r->n_versions; i++) {
        if (!str_eq_c(r->versions[i].version, "default"))
            return true;
    }
    return false;
}

/* What was said around a piece. */
static void note_heard(struct engine_call *c, const struct engine_result *r)
{
    const struct str words[] = {r->version_before, r->version_after};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!is_set(words[i]))
            continue;
        c->heard_last = arena_str(&c->arena, words[i]);
        if (!c->heard_first.p)
            c->heard_first = c->heard_last;
    }
}

/* Whether the engine's words around the answer leave room for the trainer's: who told a version
 * long ago, and pushes later ones to the engine alone, does not mean this answer with it. */
static bool stamps_may_hold(const struct engine_call *c, const struct engine_version *v, size_t n)
{
    return n == 0 || c->req.lora.len > 0 || !c->heard_first.p ||
           (str_eq(v[0].version, c->heard_first) && str_eq(v[n - 1].version, c->heard_last));
}

/* The engine's own word holds over the trainer's: that they differ is told once, until they agree.
 */
static void compare_words(const struct engine_call *c, const struct engine_result *r)
{
    struct str told = vec_last(&c->stamps).version;
    struct str reported = r->versions[r->n_versions - 1].version;
    bool differs = told.len > 0 && reported.len > 0 && !str_eq(told, reported);

    if (differs && !c->replica->contradicts)
        log_warn(NULL, "an engine tells another version of its weights than the trainer",
                 LOG_T("engine", c->replica->target.name), LOG_S("told", told),
                 LOG_S("reported", reported));
    c->replica->contradicts = differs;
}

/* Weight versions that the trainer told us, for engines that report none. */
static void stamp_versions(struct engine_call *c, struct engine_result *r)
{
    size_t n = 0;
    struct engine_version *v;

    if (c->req.lora.len > 0)
        r->n_versions = 0; /* of the weights below the adapter */
    if (c->stamps.n == 0 || r->ids.n == 0)
        return;
    if (reports_version(r)) {
        compare_words(c, r);
        return;
    }
    v = arena_calloc(&c->arena, c->stamps.n, sizeof(*v));
    for (size_t i = 0; i < c->stamps.n; i++) {
        uint32_t start = i == 0 ? 0 : c->stamps.at[i].start;

        if (start >= r->ids.n)
            break;
        if (n > 0)
            v[n - 1].end = start;
        v[n++] = (struct engine_version){c->stamps.at[i].version, start, (uint32_t)r->ids.n};
    }
    r->versions = v;
    r->n_versions = stamps_may_hold(c, v, n) ? n : 0;
}

static void deliver(struct engine_call *c, struct engine_result *r)
{
    struct engine_pool *p = c->pool;
    uint64_t now = clock_us();

    stamp_versions(c, r);
    r->replica = c->replica->target.name;
    r->queue_us = c->queue_us;
    r->first_us = (c->first_us ? c->first_us : now) - c->asked_us;
    r->total_us = now - c->asked_us;
    r->retries = c->retries;
    r->resumes = c->resumes;
    replica_answered(c->replica, r);
    if (p->admission)
        admission_answered(c, r);
    unlink_call(c);
    c->events->done(c->ctx, r);
    free_call(c);
    drained_check(p);
}

/* Waits for a free replica again. */
static void requeue(struct engine_call *c);

static void on_again(struct loop_timer *t)
{
    requeue(CONTAINER_OF(t, struct engine_call, timer));
}

/* Off the replica; back in the queue after a while (0: at once). */
static void again(struct engine_call *c, uint64_t delay_ms)
{
    leave_replica(c);
    c->state = CALL_RESTING;
    c->req.attempt++;
    if (delay_ms == 0)
        requeue(c);
    else
        loop_timer_set(c->pool->loop, &c->timer, delay_ms, on_again);
    drained_check(c->pool);
}

static void add_to_prompt(struct engine_call *c, struct token_span ids)
{
    vec_reserve(&c->prompt, ids.n);
    if (ids.n > 0)
        memcpy(c->prompt.at + c->prompt.n, ids.at, ids.n * sizeof(*ids.at));
    c->prompt.n += ids.n;
}

/* The engine gave up part way: true when the rest is asked for anew; otherwise r is the answer, or
 * e says why there is none. */
static bool resume(struct engine_call *c, struct engine_result *r, struct err *e)
{
    uint64_t delay = 0;

    if (!c->pool->opt.resume_aborts) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine aborted the generation");
        return false;
    }
    add_to_prompt(c, (struct token_span){c->req.prompt.at, c->prompt.n > 0 ? 0 : c->n_prompt});
    add_to_prompt(c, r->ids);
    c->req.sampling.max_tokens -= (int64_t)r->ids.n;
    if (c->req.sampling.max_tokens <= 0) {
        r->finish = ENGINE_LENGTH;
        return false;
    }
    c->fruitless = r->ids.n > 0 ? 0 : c->fruitless + 1;
    if (c->fruitless <= 1)
        c->fruitless_us = clock_us();
    if (c->fruitless > 0)
        delay =
            MIN_OF((uint64_t)RESUME_MS << MIN_OF(c->fruitless - 1, 8u), (uint64_t)RESUME_MAX_MS);
    if (c->fruitless > 0 && c->pool->opt.timeout_ms > 0 &&
        clock_us() - c->fruitless_us > c->pool->opt.timeout_ms * 1000) {
        (void)err_set(e, ERR_ENGINE_TIMEOUT, "the engine kept aborting the generation");
        return false;
    }
    c->resumes++;
    c->req.prompt = (struct token_span){c->prompt.at, c->prompt.n};
    again(c, delay);
    return true;
}

/* An engine starts a grammar anew with every request, so an answer under one cannot be gone on
 * with; a grammar that allows any text as well does not mind. */
static bool must_start_over(const struct engine_call *c, const struct engine_result *r)
{
    const struct json *grammar = c->req.sampling.grammar;

    return r->finish == ENGINE_ABORTED && r->ids.n > 0 && grammar &&
           !json_is_true(json_get(grammar, "text_too"));
}

/* What came is dropped and asked for again, unless somebody has heard of it already. */
static void start_over(struct engine_call *c)
{
    struct err e = {0};

    if (!c->pool->opt.resume_aborts || c->req.stream) {
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                      "the engine aborted a generation that is bound to a grammar");
        pool_fail(c, &e);
        return;
    }
    c->stamps.n = 0;
    c->heard_first = c->heard_last = (struct str){0};
    c->resumes++;
    again(c, RESUME_MS);
}

static void on_done(void *ctx, const struct engine_result *given)
{
    struct engine_call *c = ctx;
    struct engine_result r = *given;
    struct err e = {0};
    bool spliced = c->splice.pieces > 0 || r.finish == ENGINE_ABORTED;

    if (check_piece(c, &r, &e) < 0) {
        pool_fail(c, &e);
        return;
    }
    if (must_start_over(c, &r)) {
        start_over(c);
        return;
    }
    note_heard(c, &r);
    if (spliced)
        splice_add(&c->splice, &r);
    if (r.finish == ENGINE_ABORTED && resume(c, &r, &e))
        return;
    if (e.kind == ERR_NONE)
        (void)check_experts(c, &r, &e);
    if (e.kind != ERR_NONE) {
        pool_fail(c, &e);
        return;
    }
    if (spliced)
        splice_result(&c->splice, &r);
    deliver(c, &r);
}

/* What is left of the time that a call waits for an engine: all of it while one can be reached. */
static uint64_t patience_ms(const struct engine_call *c)
{
    uint64_t all = c->pool->opt.queue_timeout_ms;
    uint64_t spent = c->lost_us > 0 ? (clock_us() - c->lost_us) / 1000 : 0;

    return spent < all ? all - spent : 0;
}

/* Nothing of the request has reached an engine, and it is the engine's fault: it is down, or about
 * to be found so. Such a call waits for one to come back. */
static bool lost(struct engine_call *c, const struct err *e, enum engine_failure how)
{
    bool unreachable = e->sys != 0 && e->sys != ECONNRESET && e->sys != EPIPE;

    if (how != ENGINE_NO_ANSWER || !(unreachable || !replicas_any_up(&c->pool->replicas))) {
        c->lost_us = 0;
        return false;
    }
    if (c->lost_us == 0)
        c->lost_us = clock_us();
    return patience_ms(c) > 0;
}

/* To another replica, or to the same one when there is no other. */
static void repeat(struct engine_call *c)
{
    uint64_t base = (uint64_t)RETRY_MS << MIN_OF(c->retries, 6u);

    c->retries++;
    replica_retried(c->replica);
    c->avoid = c->replica;
    again(c, base / 2 + str_hash(c->req.session_id, clock_us()) % base);
}

static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct engine_call *c = ctx;
    struct engine_pool *p = c->pool;
    bool repeatable =
        how == ENGINE_NO_ANSWER || (how == ENGINE_SAID_5XX && p->opt.retry_5xx && !c->told);

    if (how == ENGINE_ASK_ANEW && c->anew < ANEW_MAX) {
        c->anew++;
        again(c, 0);
        return;
    }
    /* One request that makes an engine hang up says little about the others. */
    if (how == ENGINE_NO_ANSWER && e->sys != 0)
        replica_unreachable(c->replica);
    if (lost(c, e, how) || (repeatable && c->retries < p->opt.retries))
        repeat(c);
    else
        pool_fail(c, e);
}

static const struct engine_attempt_events attempt_events = {on_delta, on_done, on_failed};

/* --- the queue --- */

/* The trainer's word for the weights that the call is sampled with; absent or empty: none. */
static struct str told_version(const struct engine_call *c)
{
    return c->req.lora.len > 0 ? lora_version(&c->pool->loras, c->req.lora)
                               : buf_str(&c->pool->version);
}

/* What a session had computed where it was is of no use elsewhere: each move is told, and why. */
static void note_home(struct engine_call *c, const struct replica *r)
{
    struct engine_pool *p = c->pool;
    struct replica_wish w = {.session_id = c->req.session_id, .avoid = c->avoid};
    uint64_t before = session_homes_note(&p->homes, c->req.session_id, r->hash);
    struct log_scope scope = {.session = c->req.session_id};
    enum replica_move why;

    if (before == 0 || before == r->hash)
        return;
    why = replicas_move(&p->replicas, &w, before, r);
    metrics_count_at(p->opt.metrics, METRIC_session_moves, why, 0, 1);
    if (why == MOVE_LOAD || why == MOVE_HOME)
        log_debug(&scope, "session moves to another engine", LOG_T("engine", r->target.name),
                  LOG_T("reason", replica_move_name(why)));
    else
        log_info(&scope, "session moves to another engine", LOG_T("engine", r->target.name),
                 LOG_T("reason", replica_move_name(why)));
}

static void run_call(struct engine_call *c, struct replica *r)
{
    struct engine_pool *p = c->pool;
    uint64_t now = clock_us();

    note_home(c, r);
    if (p->admission)
        admission_runs(c, r);
    leave_queue(c);
    loop_timer_stop(p->loop, &c->timer);
    c->state = CALL_RUNNING;
    c->replica = r;
    c->queue_us += now - c->queued_us;
    p->running++;
    /* Whether a part was sent shows in its size only: the size of a row must be known. */
    if (p->experts.row_bytes == 0)
        c->req.experts_from = 0;
    if (c->stamps.n == 0 && told_version(c).len > 0)
        pool_stamp(c);
    c->req.kv_salt = p->opt.kv_per_version && told_version(c).len > 0
                         ? arena_str(&c->arena, told_version(c))
                         : (struct str){0};
    c->attempt = r->adapter->start(r->impl, &c->req, &attempt_events, c);
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

static void refuse(struct engine_call *c, loop_timer_fn on_time);

static struct replica *pick(struct engine_call *c)
{
    struct replica_wish w = {
        .session_id = c->req.session_id, .avoid = c->avoid, .request = &c->req};

    w.kept = admission_home(c->pool, c->req.session_id);
    return replicas_pick(&c->pool->replicas, &w);
}

static void on_untold(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                  "no engine has told within the queue timeout whether it takes adapters");
    pool_fail(c, &e);
}

/* No engine can take the call, or none has told yet that it can: others must not wait for it. */
static void set_aside(struct engine_call *c)
{
    if (!replicas_suit(&c->pool->replicas, &c->req, true)) {
        refuse(c, on_unsuited);
        return;
    }
    if (c->lost_us == 0)
        c->lost_us = clock_us();
    if (patience_ms(c) == 0) {
        refuse(c, on_untold);
        return;
    }
    leave_queue(c);
    c->state = CALL_RESTING;
    loop_timer_set(c->pool->loop, &c->timer, RETRY_MS, on_again);
}

/* Starts what may start, at the end of a turn of the loop; of very many, some in each turn: long
 * prompts are written out for each. */
static void run_waiting(struct engine_pool *p)
{
    uint64_t until_us = clock_us() + START_SLICE_US;

    while (p->pause == ENGINE_RUN) {
        struct fair_item *i = fair_first(&p->queue);
        struct engine_call *c = i ? CONTAINER_OF(i, struct engine_call, item) : NULL;
        struct replica *r = c ? pick(c) : NULL;

        if (c && !r && p->replicas.n > 0 && !replicas_suit(&p->replicas, &c->req, false)) {
            set_aside(c);
            continue;
        }
        if (!r || !replica_begin(r))
            return;
        run_call(c, r);
        if (clock_us() >= until_us) {
            pool_dispatch(p);
            return;
        }
    }
}

/* Other workers give places back without a word. */
static void on_look(struct loop_timer *t)
{
    pool_dispatch(CONTAINER_OF(t, struct engine_pool, look));
}

static void run_queue(struct loop_task *t)
{
    struct engine_pool *p = CONTAINER_OF(t, struct engine_pool, dispatch);

    run_waiting(p);
    if (p->opt.board && p->queue.n > 0 && p->pause == ENGINE_RUN && replicas_any_up(&p->replicas))
        loop_timer_set(p->loop, &p->look, LOOK_MS, on_look);
    metrics_set(p->opt.metrics, METRIC_queue_depth, p->queue.n);
}

static void on_deadline(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    /* Held calls wait as long as the pause lasts, and anew afterwards. */
    if (c->pool->pause != ENGINE_RUN) {
        loop_timer_set(c->pool->loop, &c->timer, c->pool->opt.queue_timeout_ms, on_deadline);
        return;
    }
    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_QUEUE_TIME, 0, 1);
    if (replicas_any_up(&c->pool->replicas))
        (void)err_set(&e, ERR_OVERLOADED, "no engine was free within the queue timeout");
    else
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                      "no engine answers, and none came back within the queue timeout");
    pool_fail(c, &e);
}

static void on_refused(struct loop_timer *t)
{
    struct engine_call *c = CONTAINER_OF(t, struct engine_call, timer);
    struct err e = {0};

    metrics_count_at(c->pool->opt.metrics, METRIC_refusals, METRIC_REFUSAL_QUEUE, 0, 1);
    (void)err_set(&e, ERR_OVERLOADED, "the engine queue is full");
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

static void requeue(struct engine_call *c)
{
    struct engine_pool *p = c->pool;

    c->state = CALL_QUEUED;
    c->queued_us = clock_us();
    fair_push(&p->queue, &c->item, c->req.session_id);
    wait_for(c, home_of(c));
    loop_timer_set(p->loop, &c->timer, MAX_OF(patience_ms(c), (uint64_t)1), on_deadline);
    pool_dispatch(p);
}

/* Off the queue, or never on it; its owner is told from the loop. */
static void refuse(struct engine_call *c, loop_timer_fn on_time)
{
    leave_queue(c);
    c->state = CALL_RESTING;
    loop_timer_set(c->pool->loop, &c->timer, 1, on_time);
}

/* Whether the call may wait. Where the queue is full, sessions with more than their share make room
 * for those with less. */
static bool find_slot(struct engine_call *c)
{
    struct engine_pool *p = c->pool;
    struct str session = c->req.session_id;
    struct fair_item *surplus;

    if (p->opt.max_session_queue > 0 &&
        fair_waiting(&p->queue, session) >= p->opt.max_session_queue) {
        refuse(c, on_session_full);
        return false;
    }
    if (p->opt.max_queue == 0 || p->queue.n < p->opt.max_queue)
        return true;
    surplus = fair_surplus(&p->queue, session, p->opt.max_queue);
    refuse(surplus ? CONTAINER_OF(surplus, struct engine_call, item) : c, on_refused);
    return surplus != NULL;
}

/* --- what turn calls --- */

void pool_queue(struct engine_call *c)
{
    if (find_slot(c))
        requeue(c);
}

struct engine_call *engine_start(struct engine_pool *p, const struct engine_request *r,
                                 const struct engine_events *events, void *ctx)
{
    struct engine_call *c = mem_zalloc(sizeof(*c));

    c->pool = p;
    c->req = *r;
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
    /* From the start each time: what hears of its end may cancel others.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while ((c = LIST_FIRST_OF(&p->calls, struct engine_call, in_pool))) {
        if (c->state == CALL_RUNNING)
            c->replica->adapter->cancel(c->attempt);
        pool_fail(c, &e);
    }
}

void pool_forget(void *pool, struct replica *r)
{
    struct engine_pool *p = pool;
    struct engine_call *c;

    version_round_forget(p, r);
    LIST_EACH(&p->calls, c, struct engine_call, in_pool) {
        if (c->avoid == r)
            c->avoid = NULL;
        if (c->replica == r)
            c->replica = NULL;
        if (c->home == r)
            wait_for(c, NULL);
    }
    admission_forget(p, r);
}

void pool_stamp(struct engine_call *c)
{
    uint32_t start = c->req.stream ? c->given : (uint32_t)c->splice.ids.n;
    struct str version = arena_str(&c->arena, told_version(c));

    /* Nothing was written since the last one: it never applied. */
    if (c->stamps.n > 0 && vec_last(&c->stamps).start >= start)
        vec_last(&c->stamps).version = version;
    else
        *vec_push(&c->stamps) = (struct stamp){version, start};
}
