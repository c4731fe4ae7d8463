/* The last steps but one: what the engine gave becomes a record, in the journal and applied, and as
 * durable as promised before anybody sees the end. */
#include "common/base/clock.h"
#include "common/proc/metrics.h"
#include "worker/call/call_env.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/sampled_answer.h"
#include "worker/call/told.h"
#include "worker/engine/engine.h"
#include "worker/engine/engine_pool.h"
#include "worker/ledger/ledger.h"
#include "worker/model/model.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"

/* As OpenAI names it. */
static struct str finish_reason(const struct sample *r)
{
    if (r->filtered)
        return STR("content_filter");
    if (r->answer.stop.hit.p)
        return STR("stop");
    if (r->finish == ENGINE_LENGTH)
        return STR("length");
    return r->answer.n_calls > 0 ? STR("tool_calls") : STR("stop");
}

/* Whether the answer ends at one of the model's own stop ids. */
static bool sample_closed(const struct model_call *t, const struct sample *r)
{
    const struct model_info *m = model_info(t->env->model);

    for (size_t i = 0; r->n_ids > 0 && i < m->n_stop_ids; i++) {
        if (m->stop_ids[i] == r->ids[r->n_ids - 1])
            return true;
    }
    return false;
}

enum { THOUGHT_END_TOKENS = 64 }; /* what engines may write to end a thought */

/* Whether the thought was held to its budget; an engine that does not know the field ignores it. */
static void check_thought(const struct model_call *t, struct sample *r)
{
    int64_t budget = 0;
    struct buf text = {0};

    if (json_to_i64(t->sampling.max_thinking_tokens, &budget) || t->plan->exhausted)
        return;
    if (r->unbudgeted)
        buf_puts(&text, "the engine could not be given max_thinking_tokens");
    else if (r->answer.reasoning_tokens > budget + THOUGHT_END_TOKENS)
        buf_printf(&text, "the thought has %u tokens, max_thinking_tokens was %lld",
                   (unsigned)r->answer.reasoning_tokens, (long long)budget);
    if (text.len)
        sampled_answer_warn(&r->answer, buf_str(&text));
    buf_done(&text);
}

/* One sample in both forms: for the listeners (r->out) and for the record (*ret). */
static void sample_result(struct model_call *t, struct sample *r, struct session_answer *ret)
{
    const struct model_info *m = model_info(t->env->model);
    uint64_t total_us = clock_us() - t->started_us;
    uint64_t away_us = r->queue_us + r->engine_us;

    r->out = (struct finished_answer){
        .index = r->answer.opt.index,
        .finish_reason = finish_reason(r),
        .stop_text = r->answer.stop.hit.p ? r->answer.stop.hit : r->stop_text,
        .message = sampled_answer_message(&r->answer, &t->arena),
        .logprobs = r->lp,
        .n_logprobs = r->n_lp,
    };
    *ret = (struct session_answer){
        .ids = {r->ids, r->n_ids},
        .logprobs = r->logprobs,
        .versions = r->versions,
        .n_versions = r->n_versions,
        .cut = !sample_closed(t, r),
        .finish_reason = r->out.finish_reason,
        .message = r->out.message,
        .response_id = r->response_id,
        .odds = r->odds,
        .experts = r->experts,
        .experts_from = r->experts_from,
        .experts_rows = r->experts_rows,
        .experts_layers = m->moe_layers,
        .experts_topk = m->moe_topk,
        .logprob_basis = r->logprobs ? str_cstr(logprob_basis_name(r->basis)) : (struct str){0},
        .scored_tokens = r->scored,
        .drifted_tokens = r->drifted,
        .cached_told = r->cached_tokens >= 0,
        .cached_tokens = (uint32_t)MAX_OF(r->cached_tokens, 0),
        .queue_us = r->queue_us,
        .engine_us = r->engine_us,
        .gateway_us = total_us > away_us ? total_us - away_us : 0,
        .upstream = r->upstream,
        .prompt = r->prompt_ids,
        .prompt_tokens = r->prompt_tokens,
    };
    check_thought(t, r);
    if (r->drifted)
        metrics_count(t->env->page, METRIC_media_drift, 1);
    if (chat_request_needs_call(t->in.req) && r->answer.n_calls == 0)
        sampled_answer_warn(&r->answer,
                            STR("tool_choice demanded a tool call and none was sampled"));
    if (r->answer.warning.len > 0) {
        ret->parse_warning = buf_str(&r->answer.warning);
        metrics_count(t->env->page, METRIC_parse_warnings, 1);
    }
    t->usage.completion_tokens += r->upstream ? r->completion_tokens : (uint32_t)r->n_ids;
    t->usage.reasoning_tokens += r->answer.reasoning_tokens;
}

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

/* Whether the trainer gets the policy's own probabilities; it is told of once per session, or the
 * answer refused. */
static int check_basis(struct model_call *t)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);
    const struct sample *r = t->samples;

    if (t->plan->exhausted || (r->logprobs && logprob_basis_is_own(r->basis, &t->sampling)))
        return 0;
    if (t->env->strict_logprobs)
        return err_set(
            &t->err, ERR_ENGINE_INVALID, "--strict-logprobs: the engine's answer has %s%s",
            r->logprobs ? "logprobs of another distribution than the sampled one: " : "no logprobs",
            r->logprobs ? logprob_basis_name(r->basis) : "");
    if (r->logprobs && s && session_tells_basis(s))
        log_warn(&t->in.scope, "logprobs are not those of the distribution that was sampled from",
                 LOG_T("basis", logprob_basis_name(r->basis)));
    return 0;
}

/* Whether the sampling support that the session wants has been told; its absence likewise. */
static int check_support(struct model_call *t)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);
    const char *what = "the engine's answer has no sampling support, which the session wants";
    bool all = true;

    for (uint32_t i = 0; i < t->n_samples; i++)
        all = all && (t->samples[i].has_support || t->samples[i].n_ids == 0);
    if (!t->wants.support || t->plan->exhausted || all)
        return 0;
    if (t->env->strict_logprobs)
        return err_set(&t->err, ERR_ENGINE_INVALID, "--strict-logprobs: %s", what);
    if (s && session_tells_support(s))
        log_warn(&t->in.scope, what);
    return 0;
}

/* Whether the routed experts that engines are asked for have come; told once per session. */
static void check_experts(struct model_call *t)
{
    bool ended = false, lost = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    for (uint32_t i = 0; i < t->n_samples; i++) {
        const struct sample *r = &t->samples[i];

        lost = lost || (!r->experts.p && r->n_ids > 0 && !r->upstream);
    }
    if (lost && !t->plan->exhausted && s && engine_pool_asks_experts(t->env->engines) &&
        session_tells_experts(s))
        log_warn(&t->in.scope, "the engine's answer has no routed experts, which it was asked for");
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

/* From here on nothing stops the call: what was sampled is on record before anybody is told. */
enum step_result step_commit(struct model_call *t)
{
    struct session_answer *answers = arena_calloc(&t->arena, t->n_samples, sizeof(*answers));
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (check_basis(t) || check_support(t))
        return STEP_FAILED;
    check_experts(t);
    for (uint32_t i = 0; i < t->n_samples; i++)
        sample_result(t, &t->samples[i], &answers[i]);
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
