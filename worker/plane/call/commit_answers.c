/* Makes the durable record of a call's answers: call_commit_answers, below, lists all steps in
 * order. The answers become a record, which is journaled, applied, and as durable as promised
 * before a listener gets the end of its answer. Long values are journaled before the record, a
 * fragment at a time (worker/session/record/call_bulk.h). An ordinary call needs no pause. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/answer_check.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"

/* --- metrics of a call whose answers are complete --- */

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

/* Counts the answers of a call, one for each of its samples, whether they are recorded or not. */
static void count_answers(const struct model_call *t)
{
    for (uint32_t i = 0; i < t->n_samples; i++) {
        metrics_count(t->env->page, METRIC_parse_warnings, t->answers[i].parse_warning.len > 0);
        metrics_count(t->env->page, METRIC_media_drift, t->answers[i].drifted_tokens > 0);
    }
}

/* Counts a call whose record is applied. `planned` is the cause of its plan, `trimmed` the number
 * of tokens that the plan dropped. Returns the cause of the first answer. */
static enum session_cause count_commit(const struct model_call *t, enum session_cause planned,
                                       uint32_t trimmed)
{
    metrics_count(t->env->page, METRIC_tokens_generated, t->usage.completion_tokens);
    metrics_count(t->env->page, METRIC_tokens_trimmed, trimmed);
    count_unversioned(t);
    metrics_observe_us(t->env->page, METRIC_turn_queue, t->answers[0].queue_us);
    metrics_observe_us(t->env->page, METRIC_turn_engine, t->answers[0].engine_us);
    metrics_observe_us(t->env->page, METRIC_turn_gateway, t->answers[0].gateway_us);
    return count_causes(t, planned);
}

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
    struct err e = {0};
    int rc = session_read_compared(t->plan, &e);

    if (model_call_check(t, rc, &e))
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
    int rc =
        session_commit_record(t->plan, t->answers, t->n_samples, clock_wall_ms(), &record, &t->err);

    if (rc == 0)
        rc = ledger_write_call(t->env->ledger, t->in.session_id, buf_str(&record),
                               (struct ledger_done){on_durable, t, on_undurable}, &t->err);
    if (rc == 0)
        t->plan = NULL;
    buf_done(&record);
    return rc;
}

/* Writes the record and counts the call. Reads the plan's figures first, because the record uses
 * the plan up. */
static int commit(struct model_call *t)
{
    enum session_cause cause = t->plan->cause;
    uint32_t trimmed = t->plan->trimmed;

    if (write_record(t))
        return lose_conflict(t);
    call_trace_mark(t, CALL_COMMITTED);
    t->cause = session_cause_name(count_commit(t, cause, trimmed));
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
    count_answers(t);
    if (!t->unrecorded && (call_make_messages(t) || write_fragments(t) || commit(t)))
        return -1;
    t->committed = true;
    return await_record(t) ? -1 : send_end(t);
}
