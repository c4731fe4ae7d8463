/* Reports events of a call other than its answer: its log line, a spent budget, a prompt that
 * leaked (model_call_internal.h). */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/session/store/session.h"

/* Writes one line of debug log for each call. */
void model_call_log_end(struct model_call *t, const char *outcome)
{
    uint64_t total_us = clock_us() - t->started_us;
    const struct sample *r = t->n_samples > 0 ? &t->samples[0] : NULL;

    t->outcome = outcome;
    log_info(t->in.scope, "call", LOG_T("dialect", t->in.dialect), LOG_T("outcome", outcome),
             LOG_I("call", t->call), LOG_T("cause", t->cause),
             LOG_U("prompt_tokens", t->usage.prompt_tokens),
             LOG_U("reused_tokens", t->reused_tokens),
             LOG_U("cached_tokens", t->usage.cached_tokens),
             LOG_U("completion_tokens", t->usage.completion_tokens),
             LOG_U("queue_us", r ? r->queue_us : 0), LOG_U("engine_us", r ? r->engine_us : 0),
             LOG_U("total_us", total_us));
}

/* Noted in the session so that the session can name the reason for its stop, even after a
 * restart. */
void model_call_note_budget(struct model_call *t, const struct err *e)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);
    struct buf record = {0};
    struct err unwritten = {0};

    if (s)
        session_budget_record(s, str_cstr(e->param), clock_wall_ms(), &record);
    if (record.len > 0 && ledger_write(t->env->ledger, t->in.session_id, buf_str(&record),
                                       (struct ledger_done){0}, &unwritten))
        log_warn(t->in.scope, "a spent budget is not on record", LOG_T("error", unwritten.text));
    buf_done(&record);
}

void model_call_note_unrecorded(const struct model_call *t)
{
    metrics_count(t->env->page, METRIC_unrecorded_answers, 1);
    log_warn(t->in.scope, "an answer is not recorded: a concurrent call of this linear session was "
                          "recorded first");
}

void model_call_note_leak(const struct model_call *t, const struct err *e)
{
    if (e->kind != ERR_PROMPT_LEAK)
        return;
    metrics_count(t->env->page, METRIC_prompt_leaks, 1);
    log_error(t->in.scope, "a prompt with stand-in text was refused",
              LOG_S("session", t->in.session_id));
}
