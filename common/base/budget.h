/*
 * struct budget: limits of one piece of pure work on untrusted input: steps, bytes and levels of
 * depth. Rendering a chat template, loading a tokenizer and encoding a text each use one. The
 * cancel flag (cancel.h) counts as a limit: a cancelled budget is exhausted.
 *
 *   every loop whose length the input chooses     budget_spend, before or in each round
 *   every allocation whose size it chooses        budget_fits, before
 *   every recursion                               budget_enter ... budget_leave
 *
 * A step is about 10 ns of work: one node, one item of a list, one word, 64 bytes of text. So
 * limits are the same on every machine. An exhausted budget stays exhausted: every later function
 * returns false. So a function that cannot fail may continue.
 */
#ifndef RG_BASE_BUDGET_H
#define RG_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"

enum budget_limit { BUDGET_LEFT, BUDGET_STEPS, BUDGET_BYTES, BUDGET_DEPTH, BUDGET_CANCELLED };

/* Default limits, for callers that choose none. */
enum { BUDGET_DEFAULT_STEPS = 50 * 1000 * 1000, BUDGET_DEFAULT_BYTES = 1 << 30 };

struct budget {
    uint64_t fuel;  /* steps until memory and the cancel flag are checked again */
    uint64_t steps; /* steps left after `fuel` */
    uint64_t max_bytes;
    const size_t *used; /* bytes in use: an arena's counter, or `held` ... */
    size_t used_start;  /* ... and its value at the start */
    size_t held;        /* bytes counted by budget_hold */
    uint32_t depth;     /* levels left */
    enum budget_limit over;
};

/* Starts a budget. used: the counter of an arena, which must outlive b; NULL: budget_hold counts. b
 * must not be copied or moved from now on. */
void budget_init(struct budget *b, uint64_t steps, uint64_t max_bytes, uint32_t depth,
                 const size_t *used);

/* Records which limit is exhausted. Always returns false. */
bool budget_exhaust(struct budget *b, enum budget_limit limit) RG_COLD;

bool budget_spend_slow(struct budget *b, uint64_t steps);

/* Spends steps. Returns false if too few are left, if the memory is exhausted, or if the work is
 * cancelled. */
static inline bool budget_spend(struct budget *b, uint64_t steps)
{
    if (RG_UNLIKELY(b->fuel < steps))
        return budget_spend_slow(b, steps);
    b->fuel -= steps;
    return true;
}

/* Spends the steps for reading `bytes` bytes. */
static inline bool budget_spend_bytes(struct budget *b, uint64_t bytes)
{
    return budget_spend(b, bytes / 64 + 1);
}

/* Reports whether `more` bytes may be used in addition to those in use. */
static inline bool budget_fits(struct budget *b, uint64_t more)
{
    if (RG_LIKELY(more <= b->max_bytes && *b->used - b->used_start <= b->max_bytes - more))
        return true;
    return budget_exhaust(b, BUDGET_BYTES);
}

/* Counts bytes that stay in use until the work ends. Returns false if they are too many. */
static inline bool budget_hold(struct budget *b, uint64_t bytes)
{
    b->held += bytes;
    return budget_fits(b, 0);
}

/* Enters one level of depth. Returns false if no level is left. Each true needs a budget_leave. */
static inline bool budget_enter(struct budget *b)
{
    if (RG_UNLIKELY(b->depth == 0))
        return budget_exhaust(b, BUDGET_DEPTH);
    b->depth--;
    return true;
}

static inline void budget_leave(struct budget *b)
{
    b->depth++;
}

/* Makes the error of an exhausted budget. `part` names the module that used it. Always returns -1.
 */
int budget_fail(const struct budget *b, const char *part, struct err *e) RG_COLD;

#endif
