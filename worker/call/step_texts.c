/* The step TEXTS: long new texts go into the journal before the commit that names them,
 * a part in each turn of the loop, so that other sessions' turns come between. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "worker/call/call_env.h"
#include "worker/call/model_call_internal.h"
#include "worker/ledger/ledger.h"
#include "worker/session/session_call.h"

/* One write of this size holds the loop for a twentieth of a millisecond, on a virtual machine that
 * has yet to find the pages for several times as long (measured: 0.4 ms a MiB, and up to 17). */
enum { TEXTS_PART = 128 << 10 };

enum step_result step_texts(struct model_call *t)
{
    struct call_env *env = t->env;
    struct buf record = {0};
    int rc = 0;
    bool more =
        !t->unrecorded && session_texts_record(t->plan, TEXTS_PART, clock_wall_ms(), &record);

    if (more)
        rc = ledger_write_call(env->ledger, t->in.session_id, buf_str(&record),
                               (struct ledger_done){0}, &t->err);
    buf_done(&record);
    if (rc)
        return STEP_FAILED;
    return more ? model_call_next_part(t) : STEP_NEXT;
}
