/* Decides what the end of an attempt means for its rollout, by the rules of its group (book.h). */
#include "dispatcher/book.h"

enum { BACKOFF_FIRST_MS = 1000, BACKOFF_MAX_MS = 60000 };

uint64_t book_backoff_ms(uint32_t failures)
{
    uint64_t ms = BACKOFF_FIRST_MS;

    for (uint32_t i = 1; i < failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    return MIN_OF(ms, (uint64_t)BACKOFF_MAX_MS);
}

enum rollout_state book_verdict(const struct attempt *a, enum outcome outcome, bool finalized)
{
    const struct rollout *r = a->rollout;
    const struct group_spec *s = &r->group->spec;
    bool more;

    if (outcome == OUTCOME_CANCELLED)
        return ROLLOUT_CANCELLED;
    if (a->refused)
        return ROLLOUT_FAILED; /* the next session would be refused, too */
    if (finalized && (outcome == OUTCOME_OK || s->on[outcome] == ON_KEEP))
        return ROLLOUT_SUCCEEDED;
    more =
        outcome == OUTCOME_INFRA ? r->infras + 1 < s->infra_attempts : r->errors + 1 < s->attempts;
    if (s->on[outcome] != ON_DROP && more && !r->group->overdue)
        return ROLLOUT_WAITING;
    return ROLLOUT_FAILED;
}
