/*
 * Checks budgets and derives the cause of a stop (stop.h). max_turns is checked before a call
 * begins, and running calls count, so that several at the same time cannot exceed the limit
 * together. max_total_tokens limits what a call may sample to what is left. That a budget has ended
 * the session is a record (RECORD_BUDGET), because the forest alone does not show it.
 *
 * The cause of a stop is derived, never stored, from the strongest reason to the weakest: what the
 * trainer stated, a budget, an abort, an agent that said it had not finished, expiry, and last the
 * last answer.
 */
#include "worker/session/store/stop.h"

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "worker/session/call/plan.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"

static const char *const names[] = {[SESSION_STOP_MODEL] = "model",
                                    [SESSION_STOP_BUDGET] = "budget",
                                    [SESSION_STOP_AGENT] = "agent",
                                    [SESSION_STOP_TRAINER] = "trainer",
                                    [SESSION_STOP_INFRASTRUCTURE] = "infrastructure"};

enum session_stop stop_named(struct str name)
{
    for (size_t i = SESSION_STOP_MODEL; i < ARRAY_LEN(names); i++) {
        if (str_eq_c(name, names[i]))
            return (enum session_stop)i;
    }
    return SESSION_STOP_NONE;
}

bool session_evaluates(const struct session *s)
{
    return s->options.evaluation;
}

/* --- budgets --- */

static int spent(const char *option, uint64_t limit, struct err *e)
{
    (void)err_field(e, option, "the session's %s of %llu is used up: it takes no further call",
                    option, (unsigned long long)limit);
    e->kind = ERR_BUDGET;
    return -1;
}

/* Running calls count: each will be recorded, or free its place when it fails. */
int session_check_turns(const struct session *s, struct err *e)
{
    uint64_t turns = s->forest.calls.n;
    const struct plan *p;

    if (s->options.max_turns == 0)
        return 0;
    LIST_EACH(&s->plans, p, struct plan, item)
        turns += !p->look;
    return turns < s->options.max_turns ? 0 : spent("max_turns", s->options.max_turns, e);
}

int session_check_tokens(const struct session *s, uint64_t context, uint64_t *left, struct err *e)
{
    uint64_t limit = s->options.max_total_tokens, used = s->forest.tokens + context;

    if (limit == 0)
        return 0;
    if (used >= limit)
        return spent("max_total_tokens", limit, e);
    *left = MIN_OF(*left, limit - used);
    return 0;
}

void session_budget_record(const struct session *s, struct str budget, uint64_t now_ms,
                           struct buf *record)
{
    if (s->budget.p || session_has_ended(s))
        return;
    record_begin(record, RECORD_BUDGET, s->id, now_ms);
    record_put_str(record, budget);
}

int session_apply_budget(struct session *s, struct record_in *r, struct err *e)
{
    struct str budget = record_str(r);

    if (r->bad || !budget.p)
        return err_set(e, ERR_IO, "session record: torn budget");
    if (!s->budget.p)
        s->budget = forest_text(&s->forest, budget);
    return 0;
}

/* --- cause of the stop --- */

struct verdict_of_stop {
    enum session_stop by;
    const char *reason;
};

/* Derives the cause from the last answer, because the agent has not continued it. */
static struct verdict_of_stop by_last_answer(const struct session *s)
{
    size_t n = s->forest.calls.n;
    const struct checkpoint *last = NULL;

    if (n > 0 && s->forest.calls.at[n - 1]->exhausted)
        return (struct verdict_of_stop){SESSION_STOP_BUDGET, "max_trajectory_length"};
    for (size_t i = s->forest.checkpoints.n; i > 0 && !last; i--) {
        if (!s->forest.checkpoints.at[i - 1]->hidden &&
            session_keeps_pool(s, s->forest.checkpoints.at[i - 1]))
            last = s->forest.checkpoints.at[i - 1];
    }
    if (!last)
        return (struct verdict_of_stop){SESSION_STOP_AGENT, "no_calls"};
    if (checkpoint_truncated(last))
        return (struct verdict_of_stop){SESSION_STOP_BUDGET, "max_tokens"};
    if (str_eq_c(last->finish_reason, "tool_calls"))
        return (struct verdict_of_stop){SESSION_STOP_AGENT, "left_calls"};
    return (struct verdict_of_stop){SESSION_STOP_MODEL, "stop"};
}

/* Returns the budget's name as a static string. */
static const char *budget_name(struct str budget)
{
    static const char *const known[] = {"max_turns", "max_session_recorded_bytes"};

    size_t i = str_index(budget, known, ARRAY_LEN(known));

    return i < ARRAY_LEN(known) ? known[i] : "max_total_tokens";
}

/* Returns the verdict on a session in that phase. */
static struct verdict_of_stop verdict_in(const struct session *s, enum session_phase phase,
                                         bool expired)
{
    if (s->stated)
        return (struct verdict_of_stop){s->stated, "stated"};
    if (s->budget.p)
        return (struct verdict_of_stop){SESSION_STOP_BUDGET, budget_name(s->budget)};
    if (phase == SESSION_ABORTED)
        return (struct verdict_of_stop){SESSION_STOP_TRAINER, "aborted"};
    if (s->has_finished && !s->finished)
        return (struct verdict_of_stop){SESSION_STOP_AGENT, "unfinished"};
    if (expired)
        return (struct verdict_of_stop){SESSION_STOP_INFRASTRUCTURE, "expired"};
    if (phase != SESSION_OPEN)
        return by_last_answer(s);
    return (struct verdict_of_stop){SESSION_STOP_NONE, NULL};
}

const char *session_stop_reason(const struct session *s, enum session_end how)
{
    if (how == SESSION_END_DELETE)
        return "deleted";
    if (!session_resident(s) || !s->filled) {
        if (how == SESSION_END_ABORT)
            return "aborted";
        return how == SESSION_END_EXPIRE ? "expired" : "unknown";
    }
    return verdict_in(s, how == SESSION_END_ABORT ? SESSION_ABORTED : SESSION_FINALIZED,
                      how == SESSION_END_EXPIRE)
        .reason;
}

bool session_stopped(const struct session *s, enum session_stop *ret_by, const char **ret_reason)
{
    struct verdict_of_stop v = verdict_in(s, s->phase, s->expired);

    *ret_by = v.by;
    *ret_reason = v.reason;
    return v.by != SESSION_STOP_NONE;
}

void session_put_stop(const struct session *s, struct json_out *o)
{
    enum session_stop by;
    const char *reason;

    json_out_key(o, "stop_reason");
    if (!session_stopped(s, &by, &reason)) {
        json_out_null(o);
        return;
    }
    json_out_obj(o);
    json_out_member_cstr(o, "by", names[by]);
    json_out_member_cstr(o, "reason", reason);
    if (s->complete_reason.p)
        json_out_member_str(o, "said", s->complete_reason);
    json_out_end_obj(o);
}
