/* struct budget (budget.h). Steps are handed out in slices: most calls only count `fuel` down. At
 * the end of a slice budget_spend_slow checks the expensive limits: the memory in use and the
 * cancel flag of the thread. */

#include "common/base/budget.h"

#include "common/base/cancel.h"

/* Steps of a slice, about 10 us: a cancelled render ends soon, and its memory grows little
 * meanwhile. */
enum { SLICE = 1024 };

static const size_t nothing;

void budget_init(struct budget *b, uint64_t steps, uint64_t max_bytes, uint32_t depth,
                 const size_t *used)
{
    *b = (struct budget){.steps = steps, .max_bytes = max_bytes, .depth = depth};
    b->used = used ? used : &b->held;
    b->used_start = *b->used;
}

bool budget_exhaust(struct budget *b, enum budget_limit limit)
{
    if (b->over == BUDGET_LEFT)
        b->over = limit;
    b->fuel = b->steps = b->max_bytes = 0;
    b->used = &nothing;
    b->used_start = 1; /* so large that nothing fits any longer */
    return false;
}

bool budget_spend_slow(struct budget *b, uint64_t steps)
{
    uint64_t left = b->fuel + b->steps;

    if (b->over != BUDGET_LEFT)
        return false;
    if (cancel_wanted())
        return budget_exhaust(b, BUDGET_CANCELLED);
    if (left < steps)
        return budget_exhaust(b, BUDGET_STEPS);
    left -= steps;
    b->fuel = MIN_OF(left, (uint64_t)SLICE);
    b->steps = left - b->fuel;
    return budget_fits(b, 0);
}

int budget_fail(const struct budget *b, const char *part, struct err *e)
{
    static const char *const what[] = {
        [BUDGET_STEPS] = "takes more steps than its budget",
        [BUDGET_BYTES] = "needs more memory than its budget",
        [BUDGET_DEPTH] = "nests deeper than its budget",
    };

    if (b->over == BUDGET_CANCELLED || b->over == BUDGET_LEFT)
        return cancel_fail(e);
    return err_set(e, ERR_INVALID, "%s %s", part, what[b->over]);
}
