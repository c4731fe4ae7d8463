/* The steps CHECK, COMMIT, DURABLE and FINISH: what the engine gave becomes a record, in the
 * journal and applied, and as durable as promised before anybody sees the end. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "worker/call/answer_check.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/call_trace.h"
#include "worker/call/commit_counts.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/sampled_answer.h"
#include "worker/ledger/ledger.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"
#include "worker/session/session_call.h"

/* Maybe still inside of step_commit; then step_durable finds it so. */
static void on_durable(void *ctx)
{
    struct model_call *t = ctx;

    t->durable = true;
    if (t->step == STEP_AT_DURABLE)
        model_call_advance(t);
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
    return answer_check(t) || session_check_commit(t->plan, &t->err) ? STEP_FAILED : STEP_NEXT;
}

/* The record of the call; session_commit asks the session once more, for it may have changed while
 * texts and answers were written. */
enum step_result step_commit(struct model_call *t)
{
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (record_commit(t, &t->err))
        return STEP_FAILED;
    call_trace_mark(t, CALL_COMMITTED);
    t->cause = session_cause_name(commit_count(t, t->answers, cause, trimmed));
    return STEP_NEXT;
}

enum step_result step_durable(struct model_call *t)
{
    return t->durable ? STEP_NEXT : STEP_WAIT;
}

/* The end of answers with more tokens, of which one takes as long as so many bytes of text, or of
 * more answers, is told in a turn of the loop behind their commit. */
enum { COMMIT_TURN_TOKENS = 8 << 10, COMMIT_TOKEN_BYTES = 32, COMMIT_TURN_ANSWERS = 32 };

static bool takes_a_turn(const struct model_call *t)
{
    size_t n = 0;

    for (uint32_t i = 0; i < t->n_samples; i++)
        n += t->samples[i].n_ids + sampled_answer_bytes(t->samples[i].answer) / COMMIT_TOKEN_BYTES;
    return n > COMMIT_TURN_TOKENS || t->n_samples > COMMIT_TURN_ANSWERS;
}

/* What the listeners are told, made once. */
static void begin_finish(struct model_call *t)
{
    t->finished = arena_calloc(&t->arena, t->n_samples, sizeof(*t->finished));
    model_call_log_end(t, "ok");
    ledger_open_delivery(t->env->ledger, t->in.session_id, t->in.body_hash,
                         t->in.req->idempotency_key, (uint64_t)t->call);
    for (uint32_t i = 0; i < t->n_samples; i++)
        t->finished[i] = t->samples[i].out;
}

/* The end of the answer, to all listeners, when each has been told what comes before; to very many
 * in some turns of the loop, in which more may join. */
enum step_result step_finish(struct model_call *t)
{
    call_listeners_let_late(t);
    if (call_listeners_behind(t))
        return STEP_WAIT;
    if (!t->finished) {
        begin_finish(t);
        if (takes_a_turn(t))
            return model_call_next_part(t);
    }
    return call_listeners_finish(t, t->finished, t->n_samples) ? model_call_next_part(t)
                                                               : STEP_NEXT;
}
