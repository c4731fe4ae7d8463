#include "worker/plane/call/commit_counts.h"

#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/store/session.h"

/* Reports whether the sample has a span without a weight version, or no span at all. */
static bool is_versioned(const struct sample *r)
{
    for (size_t i = 0; i < r->n_versions; i++) {
        if (r->versions[i].version.len == 0)
            return false;
    }
    return r->n_versions > 0 || r->n_ids == 0;
}

static void count_unversioned(const struct model_call *t)
{
    for (uint32_t i = 0; !engine_pool_name(t->engines) && i < t->n_samples; i++) {
        if (!is_versioned(&t->samples[i]))
            metrics_count(t->env->page, METRIC_unversioned_answers, 1);
    }
}

/* Counts the cause of each answer and returns that of the first. The cause differs from the planned
 * one if the commit found that the session has this answer already. */
static enum session_cause count_causes(const struct model_call *t, enum session_cause planned)
{
    bool ended = false;
    const struct session *s = session_find(t->env->store, t->in.session_id, &ended);
    enum session_cause first = planned;

    for (uint32_t i = 0; i < t->n_samples; i++) {
        enum session_cause c =
            s ? session_response_cause(s, t->samples[i].response_id, planned) : planned;

        metrics_count_at(t->env->page, METRIC_forks, (unsigned)c, 0, 1);
        first = i == 0 ? c : first;
    }
    return first;
}

void commit_count_answers(const struct model_call *t, const struct session_answer *answers)
{
    for (uint32_t i = 0; i < t->n_samples; i++) {
        metrics_count(t->env->page, METRIC_parse_warnings, answers[i].parse_warning.len > 0);
        metrics_count(t->env->page, METRIC_media_drift, answers[i].drifted_tokens > 0);
    }
}

enum session_cause commit_count(const struct model_call *t, const struct session_answer *answers,
                                enum session_cause planned, uint32_t trimmed)
{
    metrics_count(t->env->page, METRIC_tokens_generated, t->usage.completion_tokens);
    metrics_count(t->env->page, METRIC_tokens_trimmed, trimmed);
    count_unversioned(t);
    metrics_observe_us(t->env->page, METRIC_turn_queue, answers[0].queue_us);
    metrics_observe_us(t->env->page, METRIC_turn_engine, answers[0].engine_us);
    metrics_observe_us(t->env->page, METRIC_turn_gateway, answers[0].gateway_us);
    return count_causes(t, planned);
}
