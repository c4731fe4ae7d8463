/* Kind `builtin`: delivers the answers of builtin_answer.h over time. */
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "worker/engine/builtin/builtin_answer.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"

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
    struct arena arena; /* memory of the copied request */
    struct task *task;  /* task in which a helper makes the answer; or NULL */
    bool dropped;       /* the attempt was cancelled, and the task frees it */
    struct err err;     /* why there is no answer */
    size_t sent;
    struct loop_timer timer;
    struct loop_task next;
    uint64_t first_ms; /* when the first token was passed on */
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

static void free_memory(struct builtin_attempt *a)
{
    builtin_answer_done(&a->answer);
    arena_done(&a->arena);
    free(a);
}

static void attempt_free(struct builtin_attempt *a)
{
    loop_timer_stop(a->replica->loop, &a->timer);
    loop_task_cancel(a->replica->loop, &a->next);
    free_memory(a);
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
        loop_task_post_behind(a->replica->loop, &a->next, on_task);
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
    give(CONTAINER_OF(t, struct builtin_attempt, next));
}

static void begin_giving(struct builtin_attempt *a)
{
    const struct builtin_replica *r = a->replica;

    if (r->target->delay_ms > 0)
        loop_timer_set(r->loop, &a->timer, r->target->delay_ms, on_timer);
    else if (a->req->answer > 0)
        loop_task_post_behind(r->loop, &a->next, on_task);
    else
        loop_task_post(r->loop, &a->next, on_task);
}

/* --- long answers --- */

static int run_job(void *ctx, void *tool, struct err *e)
{
    struct builtin_job *j = ctx;

    (void)tool;
    (void)e;
    (void)builtin_answer_beside(j->builtin, j->req, &j->answer, &j->err);
    return 0;
}

/* Handles a helper thread that hangs. Its job is leaked. */
static void on_lost(void *ctx)
{
    struct builtin_attempt *a = ctx;

    log_error(NULL, "an engine's work does not end, its thread is given up");
    a->task = NULL;
    if (a->dropped)
        return;
    (void)err_set(&a->err, ERR_ENGINE_INVALID, "the answer took too long to make");
    begin_giving(a);
}

/* Copies a list of strings or numbers. */
static const struct json *list_copy(const struct json *list, struct arena *a)
{
    struct json *copy;

    if (!json_is(list, JSON_ARRAY))
        return NULL;
    copy = ARENA_NEW(a, struct json);
    *copy = *list;
    copy->items = arena_calloc(a, list->n, sizeof(*copy->items));
    for (uint32_t i = 0; i < list->n; i++) {
        struct str text = json_text(&list->items[i]);

        copy->items[i] = list->items[i];
        if (text.p)
            copy->items[i].text = arena_str(a, text).p;
        else
            copy->items[i] = (struct json){.kind = JSON_NULL};
    }
    return copy;
}

/* Copies what builtin_answer reads of the request into the arena. */
static struct engine_request *request_copy(const struct engine_request *r, struct arena *a)
{
    struct engine_request *copy = ARENA_NEW(a, struct engine_request);
    struct sampling *sampling = ARENA_NEW(a, struct sampling);
    struct token_span *prompt = ARENA_NEW(a, struct token_span);
    int32_t *ids = arena_alloc(a, r->prompt.n * sizeof(*ids));

    token_parts_copy(r->prompt, 0, r->prompt.n, ids);
    *prompt = (struct token_span){ids, r->prompt.n};
    *sampling = (struct sampling){
        .max_tokens = r->sampling->max_tokens,
        .ignore_eos = r->sampling->ignore_eos,
        .stop = list_copy(r->sampling->stop, a),
        .stop_token_ids = list_copy(r->sampling->stop_token_ids, a),
    };
    *copy = (struct engine_request){
        .call = r->call,
        .answer = r->answer,
        .prompt = token_parts_of(prompt),
        .sampling = sampling,
    };
    return copy;
}

/* Makes a long answer in a helper thread. If the worker ends, the owner still cancels the
 * attempt. */
static void make_long(void *ctx)
{
    struct builtin_attempt *a = ctx;
    struct builtin_job j = {.builtin = a->replica->builtin};
    struct task_work w = {.fn = run_job,
                          .ctx = &j,
                          .lane = a->req->session_id,
                          .is_long = builtin_takes_long(j.builtin, a->req)};
    struct err e = {0};
    int rc;

    builtin_hold(j.builtin);
    j.req = request_copy(a->req, &j.arena);
    a->task = task_running;
    task_on_lost(on_lost, a);
    rc = task_offload(&w, &e);
    a->task = NULL;
    a->answer = j.answer;
    a->arena = j.arena;
    a->err = j.err;
    if (rc)
        (void)err_set(&a->err, ERR_ENGINE_INVALID, "the answer took too long to make");
    builtin_free(j.builtin);
    if (a->dropped)
        free_memory(a);
    else if (e.kind != ERR_CANCELLED)
        begin_giving(a);
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
    if (r->options->tasks && builtin_is_long(r->builtin, req)) {
        (void)task_start(r->options->tasks, req->session_id, make_long, a);
        return a;
    }
    (void)builtin_answer(r->builtin, req, &a->answer, &a->err);
    begin_giving(a);
    return a;
}

static void attempt_cancel(void *attempt)
{
    struct builtin_attempt *a = attempt;

    a->dropped = true;
    if (a->task)
        task_cancel(a->task);
    else
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
