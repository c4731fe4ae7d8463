/* The step TURN (--serial-calls): a call waits until all earlier calls of its session have ended.
 * The end of a call wakes the oldest one that waits. */
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/call/call_rows.h"
#include "worker/call/call_timers.h"
#include "worker/call/model_call_internal.h"

/* A session's calls are listed newest first. */
enum step_result step_turn(struct model_call *t)
{
    const struct call_row *row = t->row;

    if (!t->env->serial_calls || !row || LIST_LAST_OF(&row->calls, struct model_call, in_row) == t)
        return STEP_NEXT;
    return STEP_WAIT;
}

static void on_turn(struct loop_task *task)
{
    struct model_call *t = CONTAINER_OF(task, struct call_timers, part)->model_call;

    if (t->step == STEP_AT_TURN)
        model_call_advance(t);
}

void model_call_wake_next(const struct model_call *ended)
{
    struct model_call *t = NULL, *at;

    if (!ended->row)
        return;
    LIST_EACH(&ended->row->calls, at, struct model_call, in_row)
        if (at != ended)
            t = at;
    if (t && t->step == STEP_AT_TURN)
        loop_task_post(t->env->loop, &t->timers->part, on_turn);
}
