/* Makes the results of a whole answer: the last event for its listeners, and the answer for the
 * session's record. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "worker/engine/pool/engine.h"
#include "worker/plane/call/answer_check.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/session/call/session_answer.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/odds.h"

/* Returns OpenAI's name of the finish reason. */
static struct str finish_reason(const struct sample *r)
{
    if (r->filtered)
        return STR("content_filter");
    if (sampled_answer_stop(r->answer).p)
        return STR("stop");
    if (r->finish == ENGINE_LENGTH)
        return STR("length");
    return r->answer->n_calls > 0 ? STR("tool_calls") : STR("stop");
}

/* Reports whether the answer ends with one of the model's own stop ids. */
static bool sample_closed(const struct model_call *t, const struct sample *r)
{
    const struct model_info *m = model_info(t->env->model);

    for (size_t i = 0; r->n_ids > 0 && i < m->n_stop_ids; i++) {
        if (m->stop_ids[i] == r->ids[r->n_ids - 1])
            return true;
    }
    return false;
}

/* Sets the layers and top-k of the indexer's rows: as the engine reports them, otherwise as the
 * model's configuration has them. */
static struct token_rows shaped_indexer(const struct model_info *m, struct token_rows r)
{
    uint32_t cells = r.block.p && r.rows ? (uint32_t)(r.block.len / r.rows / sizeof(int32_t)) : 0;

    if (r.layers == 0 && m->indexer_topk && cells % m->indexer_topk == 0)
        r.layers = cells / m->indexer_topk;
    if (r.layers == 0 && m->layers && cells % m->layers == 0)
        r.layers = m->layers;
    r.topk = r.layers ? cells / r.layers : 0;
    return r;
}

/* Returns the logprob basis that the engine was asked for. Absent if none was requested. */
static struct str basis_asked(const struct sample *r)
{
    if (r->asked == BASIS_UNKNOWN)
        return (struct str){0};
    return str_cstr(logprob_basis_name(r->asked));
}

void sample_result(struct model_call *t, struct sample *r, struct session_answer *ret)
{
    const struct model_info *m = model_info(t->env->model);
    uint64_t total_us = clock_us() - t->started_us;
    uint64_t away_us = r->queue_us + r->engine_us;
    struct str stop = sampled_answer_stop(r->answer);

    /* An engine cannot have had more than the prompt, so such a number says nothing. */
    if (r->cached_tokens > (int64_t)MAX_OF(t->usage.prompt_tokens, r->drifted))
        r->cached_tokens = -1;
    r->out = (struct finished_answer){
        .index = r->answer->opt.index,
        .finish_reason = finish_reason(r),
        .stop_text = stop.p ? stop : r->stop_text,
        .message = sampled_answer_message(r->answer, &t->arena),
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
        .rows = {r->rows[ROWS_EXPERTS], shaped_indexer(m, r->rows[ROWS_INDEXER])},
        .logprob_basis = r->logprobs ? str_cstr(logprob_basis_name(r->basis)) : (struct str){0},
        .asked_basis = basis_asked(r),
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
    ret->rows[ROWS_EXPERTS].layers = m->moe_layers;
    ret->rows[ROWS_EXPERTS].topk = m->moe_topk;
    answer_check_thought(t, r);
    if (chat_request_needs_call(t->in.req) && r->answer->n_calls == 0)
        sampled_answer_warn(r->answer,
                            STR("tool_choice demanded a tool call and none was sampled"));
    if (r->answer->warning.len > 0)
        ret->parse_warning = buf_str(&r->answer->warning);
    t->usage.completion_tokens += r->upstream ? r->completion_tokens : (uint32_t)r->n_ids;
    t->usage.reasoning_tokens += r->answer->reasoning_tokens;
}
