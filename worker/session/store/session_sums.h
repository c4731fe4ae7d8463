/*
 * struct session_measures: what a session's answers came to, for the figures of the run. The sums
 * (struct forest_sums) are kept as records are applied, so that no one walks the forest for it.
 *
 * Time, without gaps and overlaps:
 *
 *   created      call 1       answer 1     call 2       answer 2      completed or ended
 *   |---start----|--its time--|---tools----|--its time--|---scoring---|
 *                 (queue, engine, gateway)
 *
 * A call that overlaps an earlier one counts only from the end of that on.
 */
#ifndef RG_SESSION_SESSION_SUMS_H
#define RG_SESSION_SESSION_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct session;

/* As enum session_spending. */
enum { SESSION_SPENDINGS = 6 };

/* What is known of a session at its end. */
struct session_measures {
    bool known; /* it is in memory; else what follows is empty */
    bool evaluation, rewarded;
    double reward;
    struct str task, model, group; /* label `task`; pool or adapter; or absent */
    uint64_t turns, truncated, sampled, tokens;
    uint64_t began_ms, run_us, spent_us[SESSION_SPENDINGS];
    bool numbered;
    uint64_t oldest;
    struct str newest;
};

/* Measures a session that ends now, or has ended. Texts are borrowed from it. */
void session_measure(const struct session *s, uint64_t now_ms, struct session_measures *ret);

/* Whether its first export since it ended is still to be counted, which is so once. */
bool session_take_uncounted(struct session *s);

/* From now on it is. */
void session_expect_export(struct session *s);

#endif
