/*
 * struct budget: what one piece of pure work on untrusted input may use: steps, bytes and levels of
 * depth. Rendering a chat template, loading a tokenizer and encoding a text each draw on one. The
 * cancel flag (cancel.h) counts as a limit: a cancelled budget has run out.
 *
 *   every loop whose length the input chooses     budget_spend, before or in each round
 *   every allocation whose size it chooses        budget_fits, before
 *   every recursion                               budget_enter ... budget_leave
 *
 * A step is about 10 ns of work: one node, one item of a list, one word, 64 bytes of text. Limits
 * are thus the same on every machine. A budget that ran out stays so: each later question is
 * answered with false, so a function that cannot fail may go on.
 */
#ifndef RG_BASE_BUDGET_H
#define RG_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"

enum budget_limit { BUDGET_LEFT, BUDGET_STEPS, BUDGET_BYTES, BUDGET_DEPTH, BUDGET_CANCELLED };

/* Limits that a caller does not choose. */
enum { BUDGET_DEFAULT_STEPS = 50 * 1000 * 1000, BUDGET_DEFAULT_BYTES = 1 << 30 };

struct budget {
    uint64_t fuel;  /* steps until memory and the cancel flag are checked again */
    uint64_t steps; /* steps left after these */
    uint64_t max_bytes;
    const size_t *used; /* bytes in use: those of an arena, or `held` ... */
    size_t used_start;  /* ... and what they were at the start */
    size_t held;        /* bytes that budget_hold counted */
    uint32_t depth;     /* levels left */
    enum budget_limit over;
};

/* used: the count of bytes that an arena keeps, which outlives b; NULL: budget_hold counts. b is
 * not copied or moved from now on. */
void budget_init(struct budget *b, uint64_t steps, uint64_t max_bytes, uint32_t depth,
                 const size_t *used);

/* Notes which limit is spent. Always false. */
bool budget_exhaust(struct budget *b, enum budget_limit limit) RG_COLD;

bool budget_spend_slow(struct budget *b, uint64_t steps);

/* Takes steps. False when they are not left, when memory is spent, or when the work is cancelled.
 */
static inline bool budget_spend(struct budget *b, uint64_t steps)
{
    if (RG_UNLIKELY(b->fuel < steps))
        return budget_spend_slow(b, steps);
    b->fuel -= steps;
    return true;
}

/* Spends the steps of a walk over so many bytes. */
static inline bool budget_spend_bytes(struct budget *b, uint64_t bytes)
{
    return budget_spend(b, bytes / 64 + 1);
}

/* Whether `more` bytes may be used besides those in use. */
static inline bool budget_fits(struct budget *b, uint64_t more)
{
    if (RG_LIKELY(more <= b->max_bytes && *b->used - b->used_start <= b->max_bytes - more))
        return true;
    return budget_exhaust(b, BUDGET_BYTES);
}

/* Counts bytes that stay in use until the work ends; false when that is too much. */
static inline bool budget_hold(struct budget *b, uint64_t bytes)
{
    b->held += bytes;
    return budget_fits(b, 0);
}

/* One level deeper; false when none is left. Each true needs a budget_leave. */
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

/* The error of a budget that ran out, with the name of the part that used it. Always -1. */
int budget_fail(const struct budget *b, const char *part, struct err *e) RG_COLD;

#endif
