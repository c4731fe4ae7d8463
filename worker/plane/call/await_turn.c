/* With --serial-calls a call waits until all earlier calls of its session have ended. The end of a
 * call wakes the oldest one. */
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/model_call_internal.h"

/* Returns the oldest call of the row other than `ended`, or NULL. Rows have the newest call
 * first. */
static struct model_call *find_oldest(const struct call_row *row, const struct model_call *ended)
{
    struct model_call *oldest = NULL, *at;

    LIST_EACH(&row->calls, at, struct model_call, in_row)
        if (at != ended)
            oldest = at;
    return oldest;
}

int call_await_turn(struct model_call *t)
{
    int rc = 0;

    while (rc == 0 && t->env->serial_calls && t->row && find_oldest(t->row, NULL) != t) {
        t->awaits_turn = true;
        rc = model_call_wait(t);
        t->awaits_turn = false;
    }
    return rc;
}

void model_call_wake_next(const struct model_call *ended)
{
    struct model_call *t = ended->row ? find_oldest(ended->row, ended) : NULL;

    if (t && t->awaits_turn)
        model_call_wake(t);
}
