/*
 * struct session_measures: totals of a session's answers, for the figures of the run. The sums
 * (struct forest_sums) are updated as records are applied, so that no walk over the forest is
 * needed.
 *
 * Time, without gaps and overlaps:
 *
 *   created      call 1       answer 1     call 2       answer 2      completed or ended
 *   |---start----|--its time--|---tools----|--its time--|---scoring---|
 *                 (queue, engine, gateway)
 *
 * A call that overlaps an earlier one counts only from the end of the earlier one on.
 */
#ifndef RG_SESSION_SESSION_SUMS_H
#define RG_SESSION_SESSION_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/session/forest/forest.h"

struct session;

/* What is known of a session at its end. */
struct session_measures {
    bool known; /* the session is in memory; otherwise the fields below are empty */
    bool evaluation, rewarded;
    double reward;
    struct str task, model, group; /* label `task`; pool or adapter; or absent */
    uint64_t turns, truncated, sampled, tokens;
    uint64_t began_ms, run_us, spent_us[SPENDINGS];
    bool numbered;
    uint64_t oldest;
    struct str newest;
};

/* Measures a session that ends now, or has ended. Texts are borrowed from it. */
void session_measure(const struct session *s, uint64_t now_ms, struct session_measures *ret);

/* Reports, only once, whether the first export since the session's end has not been counted yet. */
bool session_take_uncounted(struct session *s);

/* From now on the next export is the first since the session's end. */
void session_expect_export(struct session *s);

#endif
