/* The steps CHECK, COMMIT, DURABLE and FINISH: what the engine gave becomes a record, in the
 * journal and applied, and as durable as promised before anybody sees the end. */
#include "common/base/clock.h"
#include "worker/call/answer_check.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_trace.h"
#include "worker/call/commit_counts.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/told.h"
#include "worker/ledger/ledger.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"
#include "worker/session/session_call.h"

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

/* From here on no client that leaves stops the call, only a bad answer or a full disk does: what
 * was sampled is on record before the end of the answer is told. */
enum step_result step_check(struct model_call *t)
{
    return answer_check(t) || session_check_commit(t->plan, &t->err) ? STEP_FAILED : STEP_NEXT;
}

/* The record of all answers in one; session_commit asks the session once more, for it may have
 * changed while texts were written. */
enum step_result step_commit(struct model_call *t)
{
    struct session_answer *answers = arena_calloc(&t->arena, t->n_samples, sizeof(*answers));
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    for (uint32_t i = 0; i < t->n_samples; i++)
        sample_result(t, &t->samples[i], &answers[i]);
    commit_count_answers(t, answers);
    settle_cached(t);
    keep_told(t, answers);
    if (record_commit(t, answers, &t->err))
        return STEP_FAILED;
    call_trace_mark(t, CALL_COMMITTED);
    commit_count(t, answers, cause, trimmed);
    return STEP_NEXT;
}

enum step_result step_durable(struct model_call *t)
{
    return t->durable ? STEP_NEXT : STEP_WAIT;
}

/* The end of the answer, to all listeners, when each has been told what comes before. */
enum step_result step_finish(struct model_call *t)
{
    struct finished_answer *out;

    if (call_listeners_behind(t))
        return STEP_WAIT;
    out = arena_calloc(&t->arena, t->n_samples, sizeof(*out));
    model_call_log_end(t, "ok");
    ledger_open_delivery(t->env->ledger, t->in.session_id, t->in.body_hash, (uint64_t)t->call);
    for (uint32_t i = 0; i < t->n_samples; i++)
        out[i] = t->samples[i].out;
    call_listeners_finish(t, out, t->n_samples);
    return STEP_NEXT;
}
