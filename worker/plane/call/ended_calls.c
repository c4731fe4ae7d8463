/* Ends the calls of sessions that have ended while the calls ran. A session may have hundreds of
 * calls, each with many engine requests and clients: the task of the ended session ends the calls
 * one after the other.
 *
 * From the session's end on, even before its own failure, such a call counts as failed: no step of
 * it runs, no engine event is passed to it, no waiting engine request of it is sent, and no request
 * finds it (it is in no call_row). Of each call the newest engine requests end first: they wait for
 * an engine, and must not get a slot that an older one frees. */

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/call_waits.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/session/store/session.h"

struct ended_session {
    struct call_env *env;
    struct list_head calls; /* list of model_call.item */
    size_t len;
    char id[];
};

MAY_PAUSE static void cancel_requests(struct model_call *t)
{
    for (uint32_t i = t->n_samples; i-- > 0;) {
        if (!t->samples[i].call)
            continue;
        engine_cancel(t->samples[i].call);
        t->samples[i].call = NULL;
        (void)task_pause(NULL);
    }
}

/* Ends a call: cancels its engine requests, sends its clients the error, and frees it. */
MAY_PAUSE static void end_call(struct model_call *t)
{
    cancel_requests(t);
    while (t->listeners) {
        call_listeners_fail(t, &t->err, 1);
        (void)task_pause(NULL);
    }
    model_call_fail_now(t, &t->err);
    (void)task_pause(NULL);
}

/* A session with the same id that was made meanwhile must end, too, before the engines are
 * notified. */
static void tell_engines(const struct call_env *env, struct str id)
{
    bool ended;

    if (!session_find(env->store, id, &ended))
        engine_pool_end_session(env->engines, id);
}

static void end_session(void *ctx)
{
    struct ended_session *s = ctx;
    struct model_call *t;

    task_shield();
    while ((t = LIST_FIRST_OF(&s->calls, struct model_call, item)))
        end_call(t);
    tell_engines(s->env, str_of(s->id, s->len));
    free(s);
}

/* Stops all steps of the call. Viewers get its end now, while no other call has its number. */
static void stop(struct model_call *t)
{
    call_watch_call(t, true);
    t->failing = t->ended = true;
    model_call_leaving(t);
    (void)err_set(&t->err, ERR_SESSION_ENDED, "the session ended during the call");
    loop_timer_stop(t->env->loop, &t->waits->rejoin);
    model_call_wake(t);
    call_rows_leave(t);
    list_remove(&t->item);
}

/* Takes all calls out of the row except those whose commit is written. The row is freed with its
 * last call. */
static void take_calls(struct call_row *row, struct ended_session *s)
{
    struct model_call *t, *next;

    LIST_EACH_SAFE(&row->calls, t, next, struct model_call, in_row) {
        if (t->committed)
            continue;
        stop(t);
        list_append(&s->calls, &t->item);
    }
}

void model_call_end_session(struct call_env *env, struct str session_id)
{
    struct call_row *row = call_rows_find(env, session_id);
    struct ended_session *s;

    if (!row) {
        tell_engines(env, session_id);
        return;
    }
    s = mem_zalloc(sizeof(*s) + session_id.len);
    s->env = env;
    s->len = session_id.len;
    if (s->len > 0)
        memcpy(s->id, session_id.p, s->len);
    take_calls(row, s);
    (void)task_start(env->tasks, str_of(s->id, s->len), end_session, s);
}
