/* The life of a model call (model_call.h): model_call_advance runs the steps of call_steps.def
 * one after the other until one must wait (STEP_WAIT) or fails. Whatever ends a wait (a helper,
 * the engine, the journal) calls model_call_advance again. At its end the call frees itself. Who
 * starts, joins and leaves calls is in running_calls.c. */

#include "worker/call/model_call.h"

#include "common/base/buf.h"
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_timers.h"
#include "worker/call/call_trace.h"
#include "worker/call/call_watch.h"
#include "worker/call/call_work.h"
#include "worker/call/give_back.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/engine/engine.h"
#include "worker/ledger/ledger.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"

/* --- life --- */

static void end_memory(struct model_call *t)
{
    struct arena arena = t->arena; /* t itself lies in it */

    call_give_back(t->env, &arena, t->in.session_id);
}

/* The helper of its steps RENDER and PROMPT reads it no more. */
static void on_let_go(struct model_call *t)
{
    if (t->pinned)
        session_unpin(t->env->store, t->pinned);
    session_release(t->env->store, t->plan);
    t->over = true;
    if (t->n_held == 0)
        end_memory(t);
}

void model_call_hold(struct model_call *t)
{
    t->n_held++;
}

void model_call_let(struct model_call *t)
{
    if (--t->n_held == 0 && t->over)
        end_memory(t);
}

/* A helper that still reads the call's arena frees it when it has let go. */
void model_call_free(struct model_call *t)
{
    struct call_env *env = t->env;

    if (!t->ended) /* else they have seen its end */
        call_watch_call(t, true);
    if (t->trace)
        call_trace_end(t);
    model_call_unlist(t);
    loop_timer_stop(env->loop, &t->timers->rejoin);
    loop_task_cancel(env->loop, &t->timers->take);
    loop_task_cancel(env->loop, &t->timers->part);
    loop_task_cancel(env->loop, &t->timers->repeat);
    loop_task_cancel(env->loop, &t->timers->fail);
    for (uint32_t i = t->n_samples; i-- > 0;) /* an engine's slot is then free for others alone */
        sample_end(&t->samples[i]);
    if (t->tops)
        buf_done(t->tops);
    if (!t->durable)
        ledger_forget(env->ledger, t);
    if (t->plan && !t->ended) /* it has not committed; a session's end gives up all by itself */
        ledger_give_up(env->ledger, t->in.session_id, t->plan->call);
    call_work_drop(t->work, on_let_go);
}

/* All listeners get the error; what was reserved is released. */
static void model_call_fail(struct model_call *t)
{
    struct err e = t->err;

    if (e.kind == ERR_BUDGET)
        model_call_note_budget(t, &e);
    if (!t->finished) /* else its end is told, and the worker ends meanwhile */
        model_call_log_end(t, err_code(&e));
    call_listeners_fail(t, &e, SIZE_MAX);
    model_call_free(t);
}

void model_call_fail_now(struct model_call *t, const struct err *e)
{
    if (!t->ended)
        t->err = *e;
    model_call_fail(t);
}

void model_call_abandon(struct model_call *t)
{
    t->failing = true;
    model_call_leaving(t);
    session_let_chain(t->plan);
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
    model_call_leaving(t);
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
    if (t->failing)
        return;
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

static void on_part_task(struct loop_task *task)
{
    model_call_advance(CONTAINER_OF(task, struct call_timers, part)->model_call);
}

/* Other sessions' turns come between. */
enum step_result model_call_next_part(struct model_call *t)
{
    loop_task_post_behind(t->env->loop, &t->timers->part, on_part_task);
    return STEP_WAIT;
}

/* A call whose client is gone commits nothing, unless a retry joins it in time. */
void model_call_answered(struct model_call *t)
{
    if (!t->listeners && !t->env->finish_on_disconnect)
        return;
    call_trace_mark(t, CALL_ANSWERED);
    t->step = STEP_AT_CHECK;
    model_call_advance(t);
}
