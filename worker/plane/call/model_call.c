/* The life of a model call (model_call.h), in two tasks:
 *
 *   model_call_ask      in the caller's task: from the parsed request to the engine
 *     (sample_take.c)   the engine's events: tokens, parsed and sent on as they come
 *   model_call_go_on    in a task of its own: the rest of long answers, then commit_answers.c
 *
 * Code that ends a call while its task runs leaves the call's memory to that task. running_calls.c
 * starts calls, and lets listeners join and leave. */

#include "worker/plane/call/model_call.h"

#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/call_waits.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/give_back.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/work.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"

/* --- end of a call --- */

static void end_memory(struct model_call *t)
{
    struct arena arena = t->arena; /* a copy, because t itself lies in the arena */

    call_free_later(t->env, &arena, t->in.session_id);
}

/* Ends a call that no task runs. */
static void end_call(struct model_call *t)
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

void model_call_free(struct model_call *t)
{
    struct call_env *env = t->env;

    if (!t->ended) /* viewers of an ended session's call have seen its end already */
        call_watch_call(t, true);
    if (t->trace)
        call_trace_end(t);
    model_call_unlist(t);
    loop_timer_stop(env->loop, &t->waits->rejoin);
    /* newest first: a slot that ends is then free only for other calls */
    for (uint32_t i = t->n_samples; i-- > 0;)
        sample_end(&t->samples[i]);
    if (!t->durable)
        ledger_forget(env->ledger, t);
    /* no commit took the plan, so its fragments are void; dropped even if the session has ended,
     * because its journal may be kept for exports */
    if (t->plan)
        ledger_release_call(env->ledger, t->in.session_id, t->plan->call);
    t->freed = t->failing = true;
    if (!t->task)
        end_call(t);
    else if (t->task != task_running)
        task_cancel(t->task);
}

/* Sends all listeners the error and releases what was reserved. */
static void model_call_fail(struct model_call *t)
{
    struct err e = t->err;

    if (e.kind == ERR_BUDGET)
        model_call_note_budget(t, &e);
    if (!t->finished) /* else its end is being sent while the worker shuts down */
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

/* Takes a call that nobody wants any more out of the session: no request finds it, and a different
 * call may take its place. The caller aborts its engine requests. */
static void model_call_abandon(struct model_call *t)
{
    t->failing = true;
    model_call_leaving(t);
    session_release_chain(t->plan);
}

/* --- tasks of a call --- */

/* Handles a helper thread that hangs and may read the call's memory for ever. */
static void on_lost(void *ctx)
{
    struct model_call *t = ctx;
    struct err e = {0};

    work_report_hung(t->in.work_hash, &e);
    if (!t->freed)
        model_call_fail_now(t, &e);
}

static void begin_task(struct model_call *t)
{
    t->task = task_running;
    task_on_lost(on_lost, t);
}

/* Ends the task of a call. A call whose session has ended is left to ended_calls.c, a cancelled one
 * to model_call_end_all. t may be freed then. */
static void end_task(struct model_call *t, int rc)
{
    t->task = NULL;
    if (t->freed) {
        end_call(t);
    } else if (t->ended) {
        return;
    } else if (t->failing && t->gone) {
        model_call_log_end(t, "client_gone");
        model_call_free(t);
    } else if (t->failing || (rc && t->err.kind != ERR_CANCELLED)) {
        model_call_fail(t);
    }
}

int model_call_check(struct model_call *t, int rc, const struct err *e)
{
    if (rc && !t->failing)
        t->err = *e;
    return rc || t->failing ? -1 : 0;
}

int model_call_pause(struct model_call *t)
{
    struct err e = {0};
    int rc = task_pause(&e);

    return model_call_check(t, rc, &e);
}

int model_call_wait(struct model_call *t)
{
    struct err e = {0};
    int rc = task_wait(&t->waits->changed, &e);

    return model_call_check(t, rc, &e);
}

int model_call_offload(struct model_call *t, const struct task_work *w)
{
    struct err e = {0};
    int rc = task_offload(w, &e);

    return model_call_check(t, rc, &e);
}

void model_call_wake(struct model_call *t)
{
    waiter_wake(&t->waits->changed);
}

static void run_end(void *ctx)
{
    struct model_call *t = ctx;
    struct err e = {0};

    begin_task(t);
    end_task(t, task_wait(&t->waits->changed, &e));
}

/* Ends the call in a later loop iteration, because callbacks use it until then. */
static void end_later(struct model_call *t)
{
    if (!t->task) {
        t->waits->changed = (struct waiter){0};
        if (!task_start(t->env->tasks, t->in.session_id, run_end, t))
            return; /* the worker ends and has freed the call */
    }
    model_call_wake(t);
}

void model_call_end_gone(struct model_call *t)
{
    model_call_abandon(t);
    t->gone = true;
    end_later(t);
}

void model_call_fail_later(struct model_call *t, const struct err *e)
{
    if (t->failing)
        return;
    t->failing = true;
    t->err = *e;
    model_call_leaving(t);
    end_later(t);
}

/* --- after the engine --- */

/* Commits the answers. A call whose client has left commits nothing, unless a retry joins in
 * time. */
MAY_PAUSE static int finish_answers(struct model_call *t)
{
    if (sample_consume_next(t))
        return -1;
    if (t->n_taken < t->n_samples || (!t->listeners && !t->env->finish_on_disconnect))
        return 0;
    if (!t->plan->exhausted)
        call_trace_mark(t, CALL_ANSWERED);
    t->answered = true;
    if (call_commit_answers(t))
        return -1;
    model_call_free(t);
    return 0;
}

static void run_answered(void *ctx)
{
    struct model_call *t = ctx;

    begin_task(t);
    end_task(t, finish_answers(t));
}

void model_call_go_on(struct model_call *t)
{
    if (!t->task && !t->failing && !t->answered)
        (void)task_start(t->env->tasks, t->in.session_id, run_answered, t);
}

/* --- before the engine --- */

MAY_PAUSE static int prepare_and_ask(struct model_call *t)
{
    if (call_await_turn(t) || call_prepare(t) || call_render(t) || call_place(t) ||
        call_record_drop(t))
        return -1;
    call_generate(t);
    return t->failing ? -1 : finish_answers(t);
}

void model_call_ask(struct model_call *t)
{
    begin_task(t);
    end_task(t, prepare_and_ask(t));
}
