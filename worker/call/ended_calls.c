/* Sessions wait in the order of their ends; of each the newest calls fail first: those wait for an
 * engine, and a place that an older one leaves is none for them. */
#include "worker/call/ended_calls.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_rows.h"
#include "worker/call/call_timers.h"
#include "worker/call/call_watch.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_pool.h"
#include "worker/session/session.h"

enum { SLICE_US = 1000 };

struct ended_session {
    struct list_item item;  /* of ended_calls.sessions */
    struct list_head calls; /* model_call.item */
    size_t len;
    char id[];
};

struct ended_calls {
    struct call_env *env;
    struct list_head sessions;
    struct loop_task task; /* posted while there are any */
};

/* What is left of a step. */
struct room {
    unsigned n;
    uint64_t until_us;
};

static bool is_over(const struct room *r)
{
    return r->n == 0 || clock_us() >= r->until_us;
}

/* Aborts engine requests, the newest first: those wait for an engine, and a place that an older one
 * leaves is none for them. True: there are more. */
static bool cancel_some(struct model_call *t, unsigned *room)
{
    for (uint32_t i = t->n_samples; i-- > 0;) {
        if (!t->samples[i].call)
            continue;
        if (*room == 0)
            return true;
        --*room;
        engine_cancel(t->samples[i].call);
        t->samples[i].call = NULL;
    }
    return false;
}

/* Its requests to engines end, then its clients hear of it, then it is gone. False: the step is
 * over before. */
static bool end_call(struct model_call *t, struct room *r)
{
    if (cancel_some(t, &r->n))
        return false;
    while (t->listeners) {
        if (is_over(r))
            return false;
        call_listeners_fail(t, &t->err, 1);
        r->n--;
    }
    if (is_over(r))
        return false;
    model_call_fail_now(t, &t->err);
    r->n--;
    return true;
}

/* Whoever made another session of that id meanwhile ends it some day, too. */
static void tell_engines(const struct call_env *env, struct str id)
{
    bool ended;

    if (!session_find(env->store, id, &ended))
        engine_pool_end_session(env->engines, id);
}

static void on_turn(struct loop_task *task);

/* Each call is looked for anew: whoever hears of one may leave others (a batch its parts). Behind
 * the last one e is gone. */
static void go_on(struct ended_calls *e, struct room r)
{
    struct call_env *env = e->env;
    struct ended_session *s;
    struct model_call *t;

    loop_task_post_behind(env->loop, &e->task, on_turn);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what is freed has left its list */
    while ((s = LIST_FIRST_OF(&e->sessions, struct ended_session, item))) {
        while ((t = LIST_FIRST_OF(&s->calls, struct model_call, item))) {
            if (!end_call(t, &r))
                return;
        }
        tell_engines(env, str_of(s->id, s->len));
        list_remove(&s->item);
        free(s);
    }
    loop_task_cancel(env->loop, &e->task);
    env->ended = NULL;
    free(e);
}

static void step(struct ended_calls *e)
{
    go_on(e, (struct room){ENDED_CALLS_STEP, clock_us() + SLICE_US});
}

static void on_turn(struct loop_task *task)
{
    step(CONTAINER_OF(task, struct ended_calls, task));
}

/* Nothing of it goes on. Who looks at calls sees it end now, as long as its number is its own. */
static void stop(struct model_call *t)
{
    struct loop *l = t->env->loop;

    call_watch_call(t, true);
    t->failing = t->ended = true;
    model_call_leaving(t);
    (void)err_set(&t->err, ERR_SESSION_ENDED, "the session ended during the call");
    loop_timer_stop(l, &t->timers->rejoin);
    loop_task_cancel(l, &t->timers->take);
    loop_task_cancel(l, &t->timers->part);
    loop_task_cancel(l, &t->timers->repeat);
    loop_task_cancel(l, &t->timers->fail);
    call_rows_leave(t);
    list_remove(&t->item);
}

static struct ended_session *session_new(struct str id)
{
    struct ended_session *s = mem_zalloc(sizeof(*s) + id.len);

    s->len = id.len;
    if (id.len > 0)
        memcpy(s->id, id.p, id.len);
    return s;
}

/* All but those whose commit is written; the row goes with its last call. */
static void take_calls(struct call_row *row, struct ended_session *s)
{
    struct model_call *t, *next;

    LIST_EACH_SAFE(&row->calls, t, next, struct model_call, in_row) {
        if (t->step >= STEP_AT_DURABLE)
            continue;
        stop(t);
        list_append(&s->calls, &t->item);
    }
}

void ended_calls_take(struct call_env *env, struct str session_id)
{
    struct ended_session *s = session_new(session_id);
    struct call_row *row = call_rows_find(env, session_id);

    if (row)
        take_calls(row, s);
    if (!env->ended) {
        env->ended = mem_zalloc(sizeof(*env->ended));
        env->ended->env = env;
    }
    list_append(&env->ended->sessions, &s->item);
    step(env->ended);
}

void ended_calls_finish(struct call_env *env)
{
    if (env->ended)
        go_on(env->ended, (struct room){UINT_MAX, UINT64_MAX});
}
