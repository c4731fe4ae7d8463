/* The last steps but one: what the engine gave becomes a record, in the journal and applied, and as
 * durable as promised before anybody sees the end. */
#include "common/base/clock.h"
#include "common/proc/metrics.h"
#include "worker/call/answer_check.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/told.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"

/* Of n answers to one prompt, counted once: what the engine had for all of them. */
static void settle_cached(struct model_call *t)
{
    int64_t least = INT64_MAX;

    for (uint32_t i = 0; i < t->n_samples; i++)
        least = MIN_OF(least, MAX_OF(t->samples[i].cached_tokens, 0));
    t->usage.cached_tokens = (uint32_t)MIN_OF(least, (int64_t)t->usage.prompt_tokens);
}

/* What the answers tell besides, for replays; the strings lie in the arena. */
static void keep_told(struct model_call *t, struct session_answer *answers)
{
    struct buf told = {0};

    for (uint32_t i = 0; i < t->n_samples; i++) {
        buf_clear(&told);
        told_write(&told, &t->head, &t->usage, &t->samples[i].out, t->in.asked[1]);
        answers[i].told = arena_str(&t->arena, buf_str(&told));
    }
    buf_done(&told);
}

/* Maybe still inside of step_commit; then step_durable finds it so. */
static void on_durable(void *ctx)
{
    struct model_call *t = ctx;

    t->durable = true;
    if (t->step == STEP_AT_DURABLE)
        model_call_advance(t);
}

/* The record is written, journaled and applied; the plan is used up. */
static int record_commit(struct model_call *t, const struct session_answer *answers, struct err *e)
{
    struct call_env *env = t->env;
    struct buf record = {0};
    int rc = session_commit(t->plan, answers, t->n_samples, clock_wall_ms(), &record, e);

    if (rc == 0)
        rc = ledger_write(env->ledger, t->in.session_id, buf_str(&record),
                          (struct ledger_done){on_durable, t}, e);
    if (rc == 0)
        t->plan = NULL;
    buf_done(&record);
    return rc;
}

/* A span without a version, or none at all. */
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
    for (uint32_t i = 0; i < t->n_samples; i++) {
        if (!is_versioned(&t->samples[i]))
            metrics_count(t->env->page, METRIC_unversioned_answers, 1);
    }
}

/* The commit may have found the same answer once more. */
static void count_causes(const struct model_call *t, enum session_cause planned)
{
    bool ended = false;
    const struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    for (uint32_t i = 0; i < t->n_samples; i++) {
        enum session_cause c =
            s ? session_response_cause(s, t->samples[i].response_id, planned) : planned;

        metrics_count_at(t->env->page, METRIC_forks, (unsigned)c, 0, 1);
    }
}

/* From here on no client that leaves stops the call, only a bad answer or a full disk does: what
 * was sampled is on record before the end of the answer is told. */
enum step_result step_commit(struct model_call *t)
{
    struct session_answer *answers = arena_calloc(&t->arena, t->n_samples, sizeof(*answers));
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (answer_check(t))
        return STEP_FAILED;
    for (uint32_t i = 0; i < t->n_samples; i++) {
        sample_result(t, &t->samples[i], &answers[i]);
        metrics_count(t->env->page, METRIC_parse_warnings, answers[i].parse_warning.len > 0);
        metrics_count(t->env->page, METRIC_media_drift, answers[i].drifted_tokens > 0);
    }
    settle_cached(t);
    keep_told(t, answers);
    if (record_commit(t, answers, &t->err))
        return STEP_FAILED;
    metrics_count(t->env->page, METRIC_tokens_generated, t->usage.completion_tokens);
    metrics_count(t->env->page, METRIC_tokens_trimmed, trimmed);
    count_unversioned(t);
    count_causes(t, cause);
    metrics_observe_us(t->env->page, METRIC_turn_queue, answers[0].queue_us);
    metrics_observe_us(t->env->page, METRIC_turn_engine, answers[0].engine_us);
    metrics_observe_us(t->env->page, METRIC_turn_gateway, answers[0].gateway_us);
    return STEP_NEXT;
}

enum step_result step_durable(struct model_call *t)
{
    return t->durable ? STEP_NEXT : STEP_WAIT;
}

/* The end of the answer, to all listeners. */
enum step_result step_finish(struct model_call *t)
{
    struct finished_answer *out = arena_calloc(&t->arena, t->n_samples, sizeof(*out));

    model_call_log_end(t, "ok");
    deliveries_open(t->env->ledger->deliveries, t->in.session_id, t->in.body_hash,
                    (uint64_t)t->call);
    for (uint32_t i = 0; i < t->n_samples; i++)
        out[i] = t->samples[i].out;
    call_listeners_finish(t, out, t->n_samples);
    return STEP_NEXT;
}
