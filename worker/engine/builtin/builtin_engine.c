/* Kind `builtin`: delivers the answers of builtin_answer.h over time. */
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/os/loop.h"
#include "worker/engine/builtin/builtin_answer.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/engine_work.h"

/* Most tokens of a stream in one step: each is an event, and there may be hundreds of streams. */
enum { GIVE_MOST = 64 };

struct builtin_replica {
    struct loop *loop;
    const struct engine_target *target;
    const struct engine_options *options;
    struct builtin *builtin;
};

/* A long answer while a helper makes it. Everything that it reads is its own. */
struct builtin_job {
    struct engine_work work;
    struct builtin_attempt *attempt;
    struct builtin *builtin; /* held by this job */
    struct engine_request *req;
    struct arena arena;
    struct builtin_answer answer;
    struct err err;
};

struct builtin_attempt {
    struct builtin_replica *replica;
    const struct engine_request *req;
    const struct engine_attempt_events *events;
    void *ctx;
    struct builtin_answer answer;
    struct arena arena;      /* memory of the copied request */
    struct builtin_job *job; /* job that makes the answer; or NULL */
    struct err err;          /* why there is no answer */
    size_t sent;
    struct loop_timer timer;
    struct loop_task task;
    uint64_t asked_ms, first_ms;
};

static int replica_open(const struct engine_adapter *kind, struct loop *loop,
                        const struct engine_target *t, const struct engine_options *o, void **ret,
                        struct err *e)
{
    struct builtin_replica *r = mem_zalloc(sizeof(*r));

    (void)kind;
    r->loop = loop;
    r->target = t;
    r->options = o;
    if (builtin_new(t->rest, o, &r->builtin, e)) {
        free(r);
        return -1;
    }
    *ret = r;
    return 0;
}

static int replica_check(const struct engine_target *t, struct err *e)
{
    return builtin_check(t->rest, e);
}

static void replica_close(void *replica)
{
    struct builtin_replica *r = replica;

    builtin_free(r->builtin);
    free(r);
}

static void attempt_free(struct builtin_attempt *a)
{
    loop_timer_stop(a->replica->loop, &a->timer);
    loop_task_cancel(a->replica->loop, &a->task);
    builtin_answer_done(&a->answer);
    arena_done(&a->arena);
    free(a);
}

/* Returns how many tokens in all are due by now. */
static size_t tokens_due(const struct builtin_attempt *a)
{
    double rate = a->replica->target->tokens_per_s;
    double due;

    if (rate <= 0)
        return a->answer.ids.n;
    due = 1 + rate * (double)(clock_ms() - a->first_ms) / 1000.0;
    return due < (double)a->answer.ids.n ? (size_t)due : a->answer.ids.n;
}

static void attempt_finish(struct builtin_attempt *a)
{
    struct engine_result r = {
        .finish = a->answer.finish,
        .stop_id = a->answer.stop_id,
        .stop_text = a->answer.stop_text,
        .ids = {a->answer.ids.at, a->answer.ids.n},
        .logprobs = a->answer.logprobs,
        .basis = a->answer.basis,
        .versions = a->answer.versions,
        .n_versions = a->answer.n_versions,
        /* the built-in engine computes nothing, like an engine whose cache has everything */
        .cached_tokens = a->req->reused,
        .first_us = (a->first_ms - a->asked_ms) * 1000,
        .total_us = (clock_ms() - a->asked_ms) * 1000,
    };

    a->events->done(a->ctx, &r);
    attempt_free(a);
}

static void on_timer(struct loop_timer *t);
static void on_task(struct loop_task *t);

static void give(struct builtin_attempt *a)
{
    size_t due, now;

    if (a->err.kind != ERR_NONE) {
        a->events->failed(a->ctx, &a->err, ENGINE_BROKE);
        attempt_free(a);
        return;
    }
    if (a->first_ms == 0)
        a->first_ms = clock_ms();
    due = tokens_due(a);
    now = a->req->stream ? MIN_OF(due, a->sent + GIVE_MOST) : due;
    if (now > a->sent) {
        struct engine_delta d = {
            .ids = {a->answer.ids.at + a->sent, now - a->sent},
            .logprobs = a->answer.logprobs ? a->answer.logprobs + a->sent : NULL,
        };

        a->sent = now;
        a->events->delta(a->ctx, &d);
    }
    if (now == a->answer.ids.n)
        attempt_finish(a);
    else if (now < due)
        loop_task_post_behind(a->replica->loop, &a->task, on_task);
    else
        loop_timer_set(a->replica->loop, &a->timer,
                       MAX_OF((uint64_t)(1000.0 / a->replica->target->tokens_per_s), 1), on_timer);
}

static void on_timer(struct loop_timer *t)
{
    give(CONTAINER_OF(t, struct builtin_attempt, timer));
}

static void on_task(struct loop_task *t)
{
    give(CONTAINER_OF(t, struct builtin_attempt, task));
}

static void begin_giving(struct builtin_attempt *a)
{
    const struct builtin_replica *r = a->replica;

    if (r->target->delay_ms > 0)
        loop_timer_set(r->loop, &a->timer, r->target->delay_ms, on_timer);
    else if (a->req->answer > 0)
        loop_task_post_behind(r->loop, &a->task, on_task);
    else
        loop_task_post(r->loop, &a->task, on_task);
}

/* --- long answers --- */

static void run_job(struct engine_work *w)
{
    struct builtin_job *j = CONTAINER_OF(w, struct builtin_job, work);

    (void)builtin_answer_beside(j->builtin, j->req, &j->answer, &j->err);
}

static void job_free(struct builtin_job *j)
{
    builtin_answer_done(&j->answer);
    builtin_free(j->builtin);
    arena_done(&j->arena);
    free(j);
}

static void on_job_dropped(struct engine_work *w)
{
    job_free(CONTAINER_OF(w, struct builtin_job, work));
}

/* If the helper is stuck, its job is leaked. */
static void on_job_done(struct engine_work *w, enum engine_work_end end)
{
    struct builtin_job *j = CONTAINER_OF(w, struct builtin_job, work);
    struct builtin_attempt *a = j->attempt;

    a->job = NULL;
    if (end == ENGINE_WORK_DONE) {
        a->err = j->err;
        a->answer = j->answer;
        a->arena = j->arena;
        j->answer = (struct builtin_answer){0};
        j->arena = (struct arena){0};
    } else {
        (void)err_set(&a->err, ERR_ENGINE_INVALID, "the answer took too long to make");
    }
    if (end != ENGINE_WORK_STUCK)
        job_free(j);
    begin_giving(a);
}

static void begin_job(struct builtin_attempt *a)
{
    struct builtin_job *j = mem_zalloc(sizeof(*j));

    j->work = (struct engine_work){.run = run_job,
                                   .done = on_job_done,
                                   .drop = on_job_dropped,
                                   .is_long = builtin_takes_long(a->replica->builtin, a->req)};
    j->attempt = a;
    j->builtin = a->replica->builtin;
    builtin_hold(j->builtin);
    j->req = builtin_request_copy(a->req, &j->arena);
    a->job = j;
    engine_work_begin(&j->work, a->replica->options->tasks, a->req->session_id);
}

static void *attempt_start(void *replica, const struct engine_request *req,
                           const struct engine_attempt_events *events, void *ctx)
{
    struct builtin_replica *r = replica;
    struct builtin_attempt *a = mem_zalloc(sizeof(*a));

    a->replica = r;
    a->req = req;
    a->events = events;
    a->ctx = ctx;
    a->asked_ms = clock_ms();
    if (r->options->tasks && builtin_is_long(r->builtin, req)) {
        begin_job(a);
        return a;
    }
    (void)builtin_answer(r->builtin, req, &a->answer, &a->err);
    begin_giving(a);
    return a;
}

static void attempt_cancel(void *attempt)
{
    struct builtin_attempt *a = attempt;

    if (a->job)
        engine_work_drop(&a->job->work);
    attempt_free(a);
}

const struct engine_adapter engine_builtin = {
    .kind = "builtin",
    .takes_images = true,
    .cannot_enforce = "regex structural_tag",
    .cannot_tell = "sampling_support indexer_topk top_logprobs routed_experts",
    .cannot_take = "min_tokens repeat_last_n allowed_token_ids bad_words max_thinking_tokens",
    .check = replica_check,
    .open = replica_open,
    .close = replica_close,
    .start = attempt_start,
    .cancel = attempt_cancel,
};
