/* Makes the durable record of a call's answers: call_commit_answers, below, lists all steps in
 * order. The answers become a record, which is journaled, applied, and as durable as promised
 * before a listener gets the end of its answer. Long values are journaled before the record, a
 * fragment at a time (worker/session/record/call_bulk.h). An ordinary call needs no pause. */
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
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"

/* --- checks before recording --- */

/* Handles a concurrent call of a linear session that was recorded first. With
 * --linear-conflict=answer this call continues, but is not recorded. */
static int lose_conflict(struct model_call *t)
{
    if (t->err.kind != ERR_STATE_CONFLICT || !t->env->answers_conflicts)
        return -1;
    t->unrecorded = true;
    t->err = (struct err){0};
    model_call_note_unrecorded(t);
    return 0;
}

/* Refuses answers that cannot be recorded, as far as this can be checked before the record is
 * made. */
static int check_answers(struct model_call *t)
{
    if (answer_check(t))
        return -1;
    return session_check_commit(t->plan, &t->err) ? lose_conflict(t) : 0;
}

/* --- fragments --- */

/* Journals the next fragment. Returns 1 if more may follow, 0 if none is left. */
static int write_fragment(struct model_call *t)
{
    struct buf record = {0};
    int rc = session_bulk_record(t->plan, t->answers, t->n_samples, CALL_FRAGMENT, clock_wall_ms(),
                                 &record);

    if (rc && ledger_write_call(t->env->ledger, t->in.session_id, buf_str(&record),
                                (struct ledger_done){0}, &t->err))
        rc = -1;
    buf_done(&record);
    return rc;
}

MAY_PAUSE static int write_fragments(struct model_call *t)
{
    int rc;

    while (session_compares_context(t->plan))
        if (model_call_pause(t))
            return -1;
    while ((rc = write_fragment(t)) == 1)
        if (model_call_pause(t))
            return -1;
    return rc;
}

/* --- the record --- */

static void on_durable(void *ctx)
{
    struct model_call *t = ctx;

    t->durable = true;
    model_call_wake(t);
}

/* Records why the fleet's store has not confirmed the answer. The journal has it. */
static void on_undurable(void *ctx, const struct err *e)
{
    struct model_call *t = ctx;

    t->undurable = *e;
    model_call_wake(t);
}

/* Writes, journals and applies the record. Uses up the plan. */
static int write_record(struct model_call *t)
{
    struct buf record = {0};
    int rc = session_commit(t->plan, t->answers, t->n_samples, clock_wall_ms(), &record, &t->err);

    if (rc == 0)
        rc = ledger_write_call(t->env->ledger, t->in.session_id, buf_str(&record),
                               (struct ledger_done){on_durable, t, on_undurable}, &t->err);
    if (rc == 0)
        t->plan = NULL;
    buf_done(&record);
    return rc;
}

/* Looks the session up again, because it may have changed while fragments were written. */
static int commit(struct model_call *t)
{
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (write_record(t))
        return lose_conflict(t);
    call_trace_mark(t, CALL_COMMITTED);
    t->cause = session_cause_name(commit_count(t, t->answers, cause, trimmed));
    return 0;
}

/* --- the end of the answer --- */

static void open_delivery(struct model_call *t)
{
    ledger_open_delivery(t->env->ledger, t->in.session_id, t->in.body_hash,
                         t->in.req->idempotency_key, (uint64_t)t->call);
}

/* Sends the end of the answer to all listeners, after each has had all earlier events. */
MAY_PAUSE static int send_end(struct model_call *t)
{
    while (call_listeners_behind(t))
        if (model_call_wait(t))
            return -1;
    t->finished = arena_calloc(&t->arena, t->n_samples, sizeof(*t->finished));
    model_call_log_end(t, t->unrecorded ? "unrecorded" : "ok");
    if (!t->unrecorded)
        open_delivery(t);
    for (uint32_t i = 0; i < t->n_samples; i++)
        t->finished[i] = t->samples[i].out;
    call_listeners_finish(t, t->finished, t->n_samples);
    return 0;
}

/* A failed wait leaves an answer that a repeated request gets, when it is durable. */
MAY_PAUSE static int await_record(struct model_call *t)
{
    while (!t->durable && !t->unrecorded) {
        if (model_call_wait(t))
            return -1;
        if (t->undurable.kind == ERR_NONE)
            continue;
        open_delivery(t);
        t->err = t->undurable;
        return -1;
    }
    return 0;
}

int call_commit_answers(struct model_call *t)
{
    if (check_answers(t) || call_render_prompt(t) || call_make_results(t))
        return -1;
    if (!t->unrecorded && (call_make_messages(t) || write_fragments(t) || commit(t)))
        return -1;
    t->committed = true;
    return await_record(t) ? -1 : send_end(t);
}
