/* Ends of attempts that no executor reports: the lease ran out, or the session was refused. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"

void ends_log(const struct attempt *a, enum outcome outcome, const struct result *r)
{
    const struct group *g = a->rollout->group;

    log_info(&(struct log_scope){.session = str_cstr(a->session)}, "attempt ended",
             LOG_S("group", g->spec.id), LOG_U("rollout", a->rollout->index),
             LOG_U("attempt", a->number), LOG_T("runner", g->runner->name),
             LOG_T("outcome", outcome_names[outcome]), LOG_T("reason", r->reason ? r->reason : ""),
             LOG_U("seconds", (clock_wall_ms() - a->claimed_at_ms) / 1000),
             LOG_T("log", r->log ? r->log : ""));
}

/* Records the end of an attempt without a waiting request. -1: not recorded, which is logged. */
static int record_untold(struct desk *d, struct attempt *a, enum outcome outcome,
                         enum end_kind kind, const char *why, uint64_t at_ms)
{
    struct result result = {.reason = (char *)(uintptr_t)why};
    struct buf record = {0};
    struct err e;
    int rc;

    ends_log(a, outcome, &result);
    record_end(a, outcome, kind, &result, at_ms, &record);
    rc = desk_write(d, a->rollout->group->spec.id, buf_str(&record), NULL, &e);
    if (rc < 0)
        log_warn(NULL, "an attempt's end cannot be recorded", LOG_T("error", e.text));
    buf_done(&record);
    polls_wake(d);
    return rc < 0 ? -1 : 0;
}

void ends_lost(struct desk *d, struct attempt *a, const char *why, uint64_t at_ms)
{
    if (record_untold(d, a, OUTCOME_INFRA, END_LOST, why, at_ms) == 0)
        metrics_count(d->heritage->page, METRIC_attempt_leases_lost, 1);
}

int ends_session_lost(struct desk *d, struct attempt *a)
{
    return record_untold(d, a, OUTCOME_INFRA, END_LOST, SESSION_LOST_REASON, clock_wall_ms());
}

void ends_refused(struct desk *d, struct attempt *a, const char *why)
{
    (void)record_untold(d, a, OUTCOME_ERROR, END_REFUSED, why, clock_wall_ms());
}
