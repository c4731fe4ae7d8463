/* A call of a linear session that lost against a concurrent one (--linear-conflict). */
#include "common/base/log.h"
#include "common/proc/metrics.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"

enum step_result model_call_lose(struct model_call *t)
{
    if (t->err.kind != ERR_STATE_CONFLICT || !t->env->answers_conflicts)
        return STEP_FAILED;
    t->unrecorded = true;
    t->err = (struct err){0};
    metrics_count(t->env->page, METRIC_unrecorded_answers, 1);
    log_warn(t->in.scope, "an answer is not recorded: a concurrent call of this linear session was "
                          "recorded first");
    return STEP_NEXT;
}
