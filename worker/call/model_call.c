/* The life of a model call (model_call.h): model_call_advance runs the steps of call_steps.def
 * one after the other until one must wait (STEP_WAIT) or fails. Whatever ends a wait (a helper,
 * the engine, the journal) calls model_call_advance again. At its end the call frees itself. Who
 * starts, joins and leaves calls is in running_calls.c. */

#include "worker/call/model_call.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_timers.h"
#include "worker/call/call_trace.h"
#include "worker/call/call_watch.h"
#include "worker/call/call_work.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/ledger/ledger.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"

/* --- life --- */

/* No helper reads it any more. */
static void on_let_go(struct model_call *t)
{
    struct arena arena = t->arena; /* t itself lies in it */

    if (t->pinned)
        session_unpin(t->env->store, t->pinned);
    session_release(t->env->store, t->plan);
    arena_done(&arena);
}

/* A helper that still reads the call's arena frees it when it has let go. */
void model_call_free(struct model_call *t)
{
    struct call_env *env = t->env;

    call_watch_call(t, true);
    if (t->trace)
        call_trace_end(t);
    list_remove(&t->item);
    env->n_running--;
    metrics_move(env->page, METRIC_calls_inflight, -1);
    loop_timer_stop(env->loop, &t->timers->rejoin);
    loop_task_cancel(env->loop, &t->timers->fail);
    for (uint32_t i = 0; i < t->n_samples; i++)
        sample_end(&t->samples[i]);
    if (!t->durable)
        ledger_forget(env->ledger, t);
    call_work_drop(t->work, on_let_go);
}

/* One line of debug log for each call. */
void model_call_log_end(struct model_call *t, const char *outcome)
{
    uint64_t total_us = clock_us() - t->started_us;
    const struct sample *r = t->n_samples > 0 ? &t->samples[0] : NULL;

    t->outcome = outcome;
    log_info(t->in.scope, "call", LOG_T("dialect", t->in.dialect), LOG_T("outcome", outcome),
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
        log_warn(t->in.scope, "a spent budget is not on record", LOG_T("error", unwritten.text));
    buf_done(&record);
}

/* All listeners get the error; what was reserved is released. */
static void model_call_fail(struct model_call *t)
{
    struct err e = t->err;

    if (e.kind == ERR_BUDGET)
        note_budget(t, &e);
    model_call_log_end(t, err_code(&e));
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
    model_call_fail(CONTAINER_OF(task, struct call_timers, fail)->model_call);
}

/* From inside of callbacks that still use the call. */
void model_call_fail_later(struct model_call *t, const struct err *e)
{
    if (t->failing)
        return;
    t->failing = true;
    t->err = *e;
    loop_task_post(t->env->loop, &t->timers->fail, on_fail_task);
}

/* --- the steps --- */

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
    call_trace_mark(t, CALL_ANSWERED);
    t->step = STEP_AT_COMMIT;
    model_call_advance(t);
}

void model_call_note_leak(const struct model_call *t, const struct err *e)
{
    if (e->kind != ERR_PROMPT_LEAK)
        return;
    metrics_count(t->env->page, METRIC_prompt_leaks, 1);
    log_error(t->in.scope, "a prompt with stand-in text was refused",
              LOG_S("session", t->in.session_id));
}
