/* Counts sessions that end (ending.h). */
#include "worker/plane/control/ending.h"

#include "common/proc/metrics.h"
#include "worker/plane/service/service.h"

void ending_count_reward(struct service *a, bool rewarded)
{
    metrics_count_at(a->calls.page, METRIC_sessions_finalized,
                     rewarded ? METRIC_REWARD_SET : METRIC_REWARD_MISSING, 0, 1);
}
