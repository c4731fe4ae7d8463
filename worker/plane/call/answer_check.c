/* Checks that the engine returned everything that the session wants of an answer. Missing data is
 * reported once a session, or, with --strict-logprobs, refused. */
#include "worker/plane/call/answer_check.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"

enum { THOUGHT_END_TOKENS = 64 }; /* tokens that engines may write to end a thought */

/* An engine that does not know the field ignores it. */
void answer_check_thought(const struct model_call *t, struct sample *r)
{
    int64_t budget = 0;
    struct buf text = {0};

    if (json_to_i64(t->sampling->max_thinking_tokens, &budget) || t->plan->exhausted)
        return;
    if (r->unbudgeted)
        buf_puts(&text, "the engine could not be given max_thinking_tokens");
    else if (r->answer->reasoning_tokens > budget + THOUGHT_END_TOKENS)
        buf_printf(&text, "the thought has %u tokens, max_thinking_tokens was %lld",
                   (unsigned)r->answer->reasoning_tokens, (long long)budget);
    if (text.len)
        sampled_answer_warn(r->answer, buf_str(&text));
    buf_done(&text);
}

/* Returns the first of the answers without the policy's own probabilities, or NULL. */
static const struct sample *without_basis(const struct model_call *t)
{
    for (uint32_t i = 0; i < t->n_samples; i++) {
        const struct sample *r = &t->samples[i];

        if (!r->logprobs || !logprob_basis_is_own(r->basis, t->sampling))
            return r;
    }
    return NULL;
}

/* Reports whether the call's session must get that warning, which it gets once. False if the
 * session is gone. */
static bool must_warn(const struct model_call *t, enum session_lack what)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    return s && session_tells(s, what);
}

/* Checks that the trainer gets the policy's own probabilities. If not, that is reported once per
 * session, or the call is refused. */
static int check_basis(struct model_call *t)
{
    const struct sample *r = t->plan->exhausted ? NULL : without_basis(t);

    if (!r)
        return 0;
    if (t->env->strict_logprobs)
        return err_set(
            &t->err, ERR_ENGINE_INVALID, "--strict-logprobs: the engine's answer has %s%s",
            r->logprobs ? "logprobs of another distribution than the sampled one: " : "no logprobs",
            r->logprobs ? logprob_basis_name(r->basis) : "");
    if (r->logprobs && must_warn(t, LACK_BASIS))
        log_warn(t->in.scope, "logprobs are not those of the distribution that was sampled from",
                 LOG_T("basis", logprob_basis_name(r->basis)));
    return 0;
}

/* Checks that the engine returned the sampling support that the session wants. */
static int check_support(struct model_call *t)
{
    const char *what = "the engine's answer has no sampling support, which the session wants";
    bool all = true;

    for (uint32_t i = 0; i < t->n_samples; i++)
        all = all && (t->samples[i].has_support || t->samples[i].n_ids == 0);
    if (!t->wants_support || t->plan->exhausted || all)
        return 0;
    if (t->env->strict_logprobs)
        return err_set(&t->err, ERR_ENGINE_INVALID, "--strict-logprobs: %s", what);
    if (must_warn(t, LACK_SUPPORT))
        log_warn(t->in.scope, what);
    return 0;
}

/* Marks answers without the routed experts that engines were asked for (token_rows.h), and logs the
 * first one of a session. */
static void check_experts(struct model_call *t)
{
    bool lost = false;

    if (t->plan->exhausted || !engine_pool_wants_experts(t->engines))
        return;
    for (uint32_t i = 0; i < t->n_samples; i++) {
        struct sample *r = &t->samples[i];
        struct token_rows *rows = &r->rows[ROWS_EXPERTS];

        if (rows->block.p || r->n_ids == 0 || r->upstream)
            continue;
        rows->from = MAX_OF(rows->from, 1);
        lost = true;
    }
    if (lost && must_warn(t, LACK_EXPERTS))
        log_warn(t->in.scope, "the engine's answer has no routed experts, which it was asked for");
}

/* Checks that the engine returned the indexer's top-k that the session wants. */
static void check_indexer(struct model_call *t)
{
    bool lost = false, large = false;

    for (uint32_t i = 0; i < t->n_samples; i++) {
        const struct sample *r = &t->samples[i];

        large = large || r->indexer_large;
        lost = lost || (!r->rows[ROWS_INDEXER].block.p && !r->indexer_large && r->n_ids > 0);
    }
    if (!t->wants_indexer || t->plan->exhausted)
        return;
    if (large && must_warn(t, LACK_INDEXER_ROOM))
        log_warn(t->in.scope,
                 "the indexer's top-k is larger than what is kept: --indexer-topk-max");
    if (lost && must_warn(t, LACK_INDEXER))
        log_warn(t->in.scope, "the engine's answer has no indexer top-k, which the session wants");
}

/* Reports rows that were computed again, and so are left out. */
static void check_recomputed(struct model_call *t)
{
    for (uint32_t i = 0; i < t->n_samples; i++) {
        const struct sample *r = &t->samples[i];
        bool lost = r->rows[ROWS_EXPERTS].block.p || r->rows[ROWS_INDEXER].block.p;

        if (r->recomputed && lost && must_warn(t, LACK_RECOMPUTED))
            log_warn(t->in.scope, "the engine computed an answer again after it had sampled it (a "
                                  "retraction): its routed experts and indexer top-k are left out");
    }
}

int answer_check(struct model_call *t)
{
    if (engine_pool_name(t->engines))
        return 0; /* the answer is never trained */
    if (check_basis(t) || check_support(t))
        return -1;
    check_experts(t);
    check_indexer(t);
    check_recomputed(t);
    return 0;
}
