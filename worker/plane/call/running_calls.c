/* Starts, finds, joins, leaves and ends running model calls. Listeners join and leave at any time;
 * the call continues for the others. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/call_waits.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/chat_request.h"

/* The arena, and with it the request, belongs to the call from here on. */
void model_call_start(struct call_env *env, struct arena *arena, const struct call_input *in,
                      struct call_listener *l)
{
    struct model_call *t = ARENA_NEW(arena, struct model_call);

    t->waits = ARENA_NEW(arena, struct call_waits);
    t->waits->model_call = t;
    t->kinds = ARENA_NEW(arena, struct answer_formats);
    t->sampling = ARENA_NEW(arena, struct sampling);
    t->env = env;
    t->in = *in;
    t->call = -1;
    t->cause = "";
    t->started_us = clock_us();
    t->arena = *arena;
    t->outcome = "";
    *arena = (struct arena){0};
    list_prepend(&env->running, &t->item);
    call_rows_add(env, t);
    env->n_running++;
    metrics_move(env->page, METRIC_calls_inflight, 1);
    call_trace_begin(t);
    call_listeners_add(t, l);
    model_call_ask(t);
}

void model_call_leaving(struct model_call *t)
{
    t->env->n_leaving += !t->leaving;
    t->leaving = true;
}

void model_call_unlist(struct model_call *t)
{
    list_remove(&t->item);
    model_call_wake_next(t);
    call_rows_leave(t);
    t->env->n_running--;
    t->env->n_leaving -= t->leaving;
    metrics_move(t->env->page, METRIC_calls_inflight, -1);
}

/* Reports whether the request has the same body as the call's, and no different key. */
static bool is_repeated_by(const struct model_call *t, const struct call_input *in)
{
    struct str key = in->req->idempotency_key, had = t->in.req->idempotency_key;

    return t->in.body_hash[0] == in->body_hash[0] && t->in.body_hash[1] == in->body_hash[1] &&
           !t->failing && (!key.p || !had.p || str_eq(key, had));
}

struct model_call *model_call_find(struct call_env *env, const struct call_input *in,
                                   bool (*gone)(struct call_listener *l))
{
    const struct call_row *row = call_rows_find(env, in->session_id);
    struct model_call *found = NULL, *t;

    if (!row)
        return NULL;
    LIST_EACH(&row->calls, t, struct model_call, in_row) {
        struct call_listener *l = t->listeners;

        if (!is_repeated_by(t, in))
            continue;
        while (l && gone && gone(l))
            l = l->next;
        if (!l || !gone)
            found = t;
    }
    return found;
}

int model_call_join(struct model_call *t, struct call_listener *l, struct err *e)
{
    if (call_listeners_count(t) >= MODEL_CALL_LISTENERS_MAX)
        return err_set(e, ERR_OVERLOADED, "more than %d requests wait for the answer of one call",
                       MODEL_CALL_LISTENERS_MAX);
    loop_timer_stop(t->env->loop, &t->waits->rejoin);
    model_call_set_left(t, false);
    metrics_count(t->env->page, METRIC_joins, 1);
    call_listeners_add(t, l);
    call_listeners_repeat(t, l);
    if (l->model_call == t && t->n_samples > 0 && t->n_taken == t->n_samples)
        model_call_go_on(t);
    return 0;
}

/* Ends the wait for a client that did not return: no request finds the call any more. */
static void on_rejoin_over(struct loop_timer *timer)
{
    struct model_call *t = CONTAINER_OF(timer, struct call_waits, rejoin)->model_call;

    if (!t->answered && !t->failing) /* a retry joined in time, and its client has left, too */
        model_call_end_gone(t);
}

/* When the last listener leaves, the time for a retry starts or the call ends. */
void model_call_leave(struct call_listener *l)
{
    struct model_call *t = l->model_call;

    if (!t)
        return;
    call_listeners_drop(t, l);
    if (t->ended) /* ended_calls.c ends the call */
        return;
    if (t->listeners || t->env->finish_on_disconnect || t->answered)
        return;
    if (!t->rendered) { /* a retry loses nothing, because the prompt is not rendered */
        model_call_log_end(t, "client_gone");
        model_call_free(t);
        return;
    }
    model_call_set_left(t, true);
    loop_timer_set(t->env->loop, &t->waits->rejoin, t->env->rejoin_window_ms, on_rejoin_over);
}

/* Detaches the listeners that have left. When the last one leaves, the call may be freed. */
static void drop_gone(struct model_call *t, bool (*gone)(struct call_listener *l))
{
    struct call_listener *next;

    for (struct call_listener *l = t->listeners; l; l = next) {
        next = l->next;
        if (gone(l))
            model_call_leave(l);
    }
}

void model_call_drop_gone(struct call_env *env, struct str session_id,
                          bool (*gone)(struct call_listener *l))
{
    const struct call_row *row = call_rows_find(env, session_id);
    struct model_call *t, *next;

    if (!row || env->finish_on_disconnect)
        return;
    for (t = LIST_FIRST_OF(&row->calls, struct model_call, in_row); t; t = next) {
        /* taken before, because freeing t may free the row */
        next = LIST_NEXT_OF(&row->calls, t, struct model_call, in_row);
        drop_gone(t, gone);
    }
}

/* Ends all calls when the worker ends. */
void model_call_end_all(struct call_env *env)
{
    struct model_call *t;
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a failed one leaves the list */
    while ((t = LIST_FIRST_OF(&env->running, struct model_call, item))) {
        model_call_fail_now(t, &e);
    }
}
