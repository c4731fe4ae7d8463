/* Calls whose clients have left, under policy chains: such a call keeps its chain for its
 * repetition, and loses the chain to a different request that continues it. */
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/session/call/session_call.h"

void model_call_set_left(struct model_call *t, bool left)
{
    session_set_left(t->plan, left);
}

void model_call_end_displaced(struct model_call *by)
{
    const struct session_plan *displaced = by->plan ? by->plan->displaced : NULL;
    const struct call_row *row;
    struct model_call *t;

    if (!displaced)
        return;
    by->plan->displaced = NULL;
    row = call_rows_find(by->env, by->in.session_id); /* the row exists, because `by` is in it */
    LIST_EACH(&row->calls, t, struct model_call, in_row)
        if (t->plan == displaced)
            break;
    if (t)
        model_call_end_gone(t);
}
