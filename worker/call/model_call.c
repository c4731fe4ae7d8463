/* The life of a model call (model_call.h): model_call_advance runs the steps of call_steps.def
 * one after the other until one must wait (STEP_WAIT) or fails. Whatever ends a wait (a helper,
 * the engine, the journal) calls model_call_advance again. Listeners come and go at any time;
 * the call goes on for those that are left, and frees itself at its end. */

#include "worker/call/model_call.h"

#include "common/base/clock.h"
#include "common/proc/metrics.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_watch.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/sampled_answer.h"
#include "worker/engine/engine.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"

/* --- life --- */

/* No helper reads it any more. */
static void on_let_go(struct long_work *w)
{
    struct model_call *t = CONTAINER_OF(w, struct model_call, work);
    struct arena arena = t->arena; /* t itself lies in it */

    if (t->pinned)
        session_unpin(t->env->store, t->pinned);
    session_release(t->env->store, t->plan);
    arena_done(&arena);
}

/* A helper that still reads the call's arena frees it when it has let go. */
static void model_call_free(struct model_call *t)
{
    struct call_env *env = t->env;

    call_watch_call(t, true);
    list_remove(&t->item);
    env->n_running--;
    metrics_move(env->page, METRIC_calls_inflight, -1);
    loop_timer_stop(env->loop, &t->rejoin);
    loop_task_cancel(env->loop, &t->fail_task);
    for (uint32_t i = 0; i < t->n_samples; i++) {
        engine_cancel(t->samples[i].call);
        if (t->samples[i].decoding)
            sampled_answer_done(&t->samples[i].answer);
    }
    if (!t->durable)
        ledger_forget(env->ledger, t);
    t->work.drop = on_let_go;
    work_drop(&t->work);
}

/* One line of debug log for each call. */
static void log_end(const struct model_call *t, const char *outcome)
{
    uint64_t total_us = clock_us() - t->started_us;
    const struct sample *r = t->n_samples > 0 ? &t->samples[0] : NULL;

    log_info(&t->in.scope, "call", LOG_T("dialect", t->in.dialect), LOG_T("outcome", outcome),
             LOG_I("call", t->call), LOG_T("cause", t->cause),
             LOG_U("prompt_tokens", t->usage.prompt_tokens),
             LOG_U("reused_tokens", t->reused_tokens),
             LOG_U("cached_tokens", t->usage.cached_tokens),
             LOG_U("completion_tokens", t->usage.completion_tokens),
             LOG_U("queue_us", r ? r->queue_us : 0), LOG_U("engine_us", r ? r->engine_us : 0),
             LOG_U("total_us", total_us));
}

/* The session tells why it stopped, also after a restart. */
static void note_budget(struct model_call *t, const struct err *e)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);
    struct buf record = {0};
    struct err unwritten = {0};

    if (s)
        session_budget_record(s, str_cstr(e->param), clock_wall_ms(), &record);
    if (record.len > 0 && ledger_write(t->env->ledger, t->in.session_id, buf_str(&record),
                                       (struct ledger_done){0}, &unwritten))
        log_warn(&t->in.scope, "a spent budget is not on record", LOG_T("error", unwritten.text));
    buf_done(&record);
}

/* All listeners get the error; what was reserved is released. */
static void model_call_fail(struct model_call *t)
{
    struct err e = t->err;

    if (e.kind == ERR_BUDGET)
        note_budget(t, &e);
    log_end(t, err_code(&e));
    call_listeners_fail(t, &e);
    model_call_free(t);
}

void model_call_fail_now(struct model_call *t, const struct err *e)
{
    t->err = *e;
    model_call_fail(t);
}

static void on_fail_task(struct loop_task *task)
{
    model_call_fail(CONTAINER_OF(task, struct model_call, fail_task));
}

/* From inside of callbacks that still use the call. */
void model_call_fail_later(struct model_call *t, const struct err *e)
{
    if (t->failing)
        return;
    t->failing = true;
    t->err = *e;
    loop_task_post(t->env->loop, &t->fail_task, on_fail_task);
}

/* --- the steps --- */

/* The end of the answer, to all listeners. */
enum step_result step_finish(struct model_call *t)
{
    struct finished_answer *out = arena_calloc(&t->arena, t->n_samples, sizeof(*out));

    log_end(t, "ok");
    deliveries_open(t->env->ledger->deliveries, t->in.session_id, t->in.body_hash,
                    (uint64_t)t->call);
    for (uint32_t i = 0; i < t->n_samples; i++)
        out[i] = t->samples[i].out;
    call_listeners_finish(t, out, t->n_samples);
    return STEP_NEXT;
}

static enum step_result (*const steps[STEP_COUNT])(struct model_call *t) = {

#define X(name, function) [STEP_AT_##name] = step_##function,
#include "worker/call/call_steps.def"
#undef X
};

/* Steps are numbers in order; none is run twice unless it waits. */
void model_call_advance(struct model_call *t)
{
    while (t->step < STEP_COUNT) {
        enum step_result r = steps[t->step](t);

        if (r == STEP_WAIT)
            return;
        if (r == STEP_FAILED) {
            model_call_fail(t);
            return;
        }
        t->step++;
    }
    model_call_free(t);
}

/* A call whose client is gone commits nothing, unless a retry joins it in time. */
void model_call_answered(struct model_call *t)
{
    if (!t->listeners && !t->env->finish_on_disconnect)
        return;
    t->step = STEP_AT_COMMIT;
    model_call_advance(t);
}

/* --- the outside --- */

/* The arena, and with it the request, belongs to the call from here on. */
void model_call_start(struct call_env *env, struct arena *arena, const struct call_input *in,
                      struct call_listener *l)
{
    struct model_call *t = ARENA_NEW(arena, struct model_call);

    t->env = env;
    t->in = *in;
    t->call = -1;
    t->cause = "";
    t->started_us = clock_us();
    t->arena = *arena;
    *arena = (struct arena){0};
    list_prepend(&env->running, &t->item);
    env->n_running++;
    metrics_move(env->page, METRIC_calls_inflight, 1);
    call_listeners_add(t, l);
    model_call_advance(t);
}

/* Same session, same body, and no other key. */
static bool repeats(const struct model_call *t, const struct call_input *in)
{
    struct str key = in->req->idempotency_key, had = t->in.req->idempotency_key;

    return t->in.body_hash[0] == in->body_hash[0] && t->in.body_hash[1] == in->body_hash[1] &&
           !t->failing && (!key.p || !had.p || str_eq(key, had)) &&
           str_eq(t->in.session_id, in->session_id);
}

/* The oldest running call that this request repeats; with `gone`, only one whose listeners are
 * all gone. */
struct model_call *model_call_find(struct call_env *env, const struct call_input *in,
                                   bool (*gone)(struct call_listener *l))
{
    struct model_call *found = NULL, *t;

    LIST_EACH(&env->running, t, struct model_call, item) {
        struct call_listener *l = t->listeners;

        if (!repeats(t, in))
            continue;
        while (l && gone && gone(l))
            l = l->next;
        if (!l || !gone)
            found = t;
    }
    return found;
}

/* The listener hears first what has come so far. */
void model_call_join(struct model_call *t, struct call_listener *l)
{
    loop_timer_stop(t->env->loop, &t->rejoin);
    metrics_count(t->env->page, METRIC_joins, 1);
    call_listeners_add(t, l);
    call_listeners_repeat(t, l);
    if (t->step == STEP_AT_GENERATE && t->n_samples > 0 && t->n_done == t->n_samples && !t->failing)
        model_call_answered(t);
}

/* Nobody has come back for the answer. */
static void on_rejoin_over(struct loop_timer *timer)
{
    struct model_call *t = CONTAINER_OF(timer, struct model_call, rejoin);

    if (t->step >= STEP_AT_COMMIT) /* joined in time; its client has left once more */
        return;
    log_end(t, "client_gone");
    model_call_free(t);
}

/* The last listener's leaving starts the time for a retry, or ends the call. */
void model_call_leave(struct call_listener *l)
{
    struct model_call *t = l->model_call;

    if (!t)
        return;
    call_listeners_drop(t, l);
    if (t->listeners || t->env->finish_on_disconnect || t->step >= STEP_AT_COMMIT)
        return;
    if (t->step <= STEP_AT_RENDER) { /* a retry that comes loses nothing */
        log_end(t, "client_gone");
        model_call_free(t);
        return;
    }
    loop_timer_set(t->env->loop, &t->rejoin, t->env->rejoin_window_ms, on_rejoin_over);
}

/* The control plane ended the session: its calls fail, except those whose commit is written
 * already. */
void model_call_end_session(struct call_env *env, struct str session_id)
{
    struct model_call *t, *next;
    struct err e = {0};

    (void)err_set(&e, ERR_SESSION_ENDED, "the session ended during the call");
    LIST_EACH_SAFE(&env->running, t, next, struct model_call, item) {
        if (t->step >= STEP_AT_DURABLE || !str_eq(t->in.session_id, session_id))
            continue;
        t->err = e;
        model_call_fail(t);
    }
}

/* When the worker ends. */
void model_call_end_all(struct call_env *env)
{
    struct model_call *t;
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a failed one leaves the list */
    while ((t = LIST_FIRST_OF(&env->running, struct model_call, item))) {
        t->err = e;
        model_call_fail(t);
    }
}
