/* Steps between the prompt and the engine. call_place gives the call its number and its token
 * budget, and for a text completion chooses the position in the session, which needs the ids.
 * call_record_drop records what a retry discards (linear). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/prepare_input.h"
#include "worker/session/call/session_call.h"
#include "worker/text/model/model.h"

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Collects the stop ids of the model and of the request in one list. */
static void collect_stop_ids(struct model_call *t)
{
    const struct model_info *m = model_info(t->env->model);
    const struct json *more = t->sampling->stop_token_ids;
    size_t n_model = t->sampling->ignore_eos ? 0 : m->n_stop_ids;

    t->stop_ids = arena_calloc(&t->arena, n_model + (more ? more->n : 0) + 1, sizeof(int32_t));
    for (size_t i = 0; i < n_model; i++)
        t->stop_ids[t->n_stop_ids++] = m->stop_ids[i];
    for (size_t i = 0; more && i < more->n; i++) {
        int64_t id = -1;

        if (json_to_i64(json_at(more, i), &id) == 0 && id >= 0 && id <= INT32_MAX)
            t->stop_ids[t->n_stop_ids++] = (int32_t)id;
    }
    qsort(t->stop_ids, t->n_stop_ids, sizeof(*t->stop_ids), by_id);
}

/* Returns the number of tokens that an answer must have. */
static size_t read_min_tokens(const struct json *v)
{
    int64_t n;

    return json_to_i64(v, &n) == 0 && n > 0 ? (size_t)n : 0;
}

/* Counts whether the suffix that the session held equals the rendering of the whole chat. */
static void count_audit(const struct model_call *t)
{
    bool differs = t->plan->audit_differs;

    if (!t->plan->audited)
        return;
    metrics_count_at(t->env->page, METRIC_suffix_audits,
                     differs ? METRIC_AUDIT_DIFFERS : METRIC_AUDIT_SAME, 0, 1);
    if (differs)
        log_error(
            NULL,
            "the text behind a stored answer was not what the template makes of the whole chat: "
            "earlier answers of this model may hold such",
            LOG_S("session", t->in.session_id), LOG_U("call", (uint64_t)t->call));
}

/* Finds the position of a text completion, whose ids are known now. */
MAY_PAUSE static int position_text(struct model_call *t)
{
    struct session *s = model_call_session(t);

    return s ? session_prepare(s, t->env->scratch, &t->arena, t->call_input, &t->plan, &t->err)
             : -1;
}

MAY_PAUSE static int end_prepare(struct model_call *t)
{
    struct err e = {0};

    return model_call_check(t, session_prepare_end(t->plan, t->call_input, &e), &e);
}

/* From here on the call counts as one of the session's. */
int call_place(struct model_call *t)
{
    struct call_env *env = t->env;

    call_trace_mark(t, CALL_RENDERED);
    if (prepare_is_text(t->in.req) ? position_text(t) : end_prepare(t))
        return -1;
    if (ledger_room(env->ledger, t->in.session_id, session_plan_adds(t->plan), &t->err))
        return -1;
    t->asked_tokens = t->sampling->max_tokens;
    t->sampling->max_tokens = t->plan->max_tokens;
    collect_stop_ids(t);
    t->min_tokens = read_min_tokens(t->sampling->min_tokens);
    t->call = (int64_t)t->plan->call;
    t->cause = session_cause_name(t->plan->cause);
    t->usage.prompt_tokens = (uint32_t)(t->plan->prompt.n + t->plan->image_extra);
    count_audit(t);
    t->reused_tokens = (uint32_t)t->plan->reused;
    metrics_count(env->page, METRIC_tokens_prompt, t->usage.prompt_tokens);
    metrics_count(env->page, METRIC_tokens_reused, t->plan->reused);
    metrics_count(env->page, METRIC_tokens_encoded, t->plan->prompt.n - t->plan->reused);
    return 0;
}

static void on_dropped(void *ctx)
{
    struct model_call *t = ctx;

    t->dropped = true;
    model_call_wake(t);
}

static void on_undropped(void *ctx, const struct err *e)
{
    struct model_call *t = ctx;

    t->undurable = *e;
    model_call_wake(t);
}

/* Recorded now, so that a crash does not bring the discarded checkpoint back. */
int call_record_drop(struct model_call *t)
{
    struct buf record = {0};
    int rc;

    if (!t->plan->drops)
        return 0;
    session_drop_record(t->plan, clock_wall_ms(), &record);
    rc = ledger_write(t->env->ledger, t->in.session_id, buf_str(&record),
                      (struct ledger_done){on_dropped, t, on_undropped}, &t->err);
    buf_done(&record);
    while (rc == 0 && !t->dropped) {
        rc = model_call_wait(t);
        if (rc == 0 && t->undurable.kind != ERR_NONE) {
            t->err = t->undurable;
            rc = -1;
        }
    }
    return rc;
}
