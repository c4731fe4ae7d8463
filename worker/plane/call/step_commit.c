/* The steps CHECK, COMMIT, DURABLE and FINISH: what the engine gave becomes a record, in the
 * journal and applied, and as durable as promised before anybody sees the end. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/answer_check.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/commit_counts.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"

static void on_durable(void *ctx)
{
    struct model_call *t = ctx;

    t->durable = true;
    model_call_wake(t);
}

/* The record is written, journaled and applied; the plan is used up. */
static int record_commit(struct model_call *t, struct err *e)
{
    struct call_env *env = t->env;
    struct buf record = {0};
    int rc = session_commit(t->plan, t->answers, t->n_samples, clock_wall_ms(), &record, e);

    if (rc == 0)
        rc = ledger_write_call(env->ledger, t->in.session_id, buf_str(&record),
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
    if (answer_check(t))
        return STEP_FAILED;
    return session_check_commit(t->plan, &t->err) ? model_call_lose(t) : STEP_NEXT;
}

/* The record of the call; session_commit asks the session once more, for it may have changed while
 * texts and answers were written. */
enum step_result step_commit(struct model_call *t)
{
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (t->unrecorded)
        return STEP_NEXT;
    if (record_commit(t, &t->err))
        return model_call_lose(t);
    call_trace_mark(t, CALL_COMMITTED);
    t->cause = session_cause_name(commit_count(t, t->answers, cause, trimmed));
    return STEP_NEXT;
}

enum step_result step_durable(struct model_call *t)
{
    return t->durable || t->unrecorded ? STEP_NEXT : STEP_WAIT;
}

/* Makes what the listeners get. */
static void write_finished(struct model_call *t)
{
    t->finished = arena_calloc(&t->arena, t->n_samples, sizeof(*t->finished));
    model_call_log_end(t, t->unrecorded ? "unrecorded" : "ok");
    if (!t->unrecorded)
        ledger_open_delivery(t->env->ledger, t->in.session_id, t->in.body_hash,
                             t->in.req->idempotency_key, (uint64_t)t->call);
    for (uint32_t i = 0; i < t->n_samples; i++)
        t->finished[i] = t->samples[i].out;
}

/* The end of the answer, to all listeners, when each has been told what comes before. */
enum step_result step_finish(struct model_call *t)
{
    if (call_listeners_behind(t))
        return STEP_WAIT;
    write_finished(t);
    call_listeners_finish(t, t->finished, t->n_samples);
    return STEP_NEXT;
}
