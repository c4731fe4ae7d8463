/*
 * struct session_sums: what rows and the figures of the run say of a session's answers, kept as
 * records are applied, so that no one walks the forest for it.
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

struct checkpoint;
struct json_out;
struct session;

enum session_spending {
    SPENDING_START,
    SPENDING_QUEUE,
    SPENDING_ENGINE,
    SPENDING_GATEWAY,
    SPENDING_TOOLS,
    SPENDING_SCORING,
    SPENDINGS
};

struct session_sums {
    uint64_t turns, truncated; /* answers of its own; those cut by length */
    uint64_t sampled;          /* their tokens */
    uint64_t last_ms;          /* wall clock of the newest answer; 0: none yet */
    uint64_t spent_us[SPENDINGS];
    bool numbered; /* some token's weight version is a number, the least: */
    uint64_t oldest;
    struct str newest; /* weight version of the newest token that has one; in the forest's arena */
};

/* Counts the answers of a call that was committed at this time. */
void session_sums_add(struct session *s, struct checkpoint *const *answers, uint32_t n,
                      uint64_t now_ms);

/* Starts again: what came before was copied. */
void session_sums_reset(struct session *s, uint64_t now_ms);

/* What is known of a session at its end. */
struct session_measures {
    bool known; /* it is in memory; else what follows is empty */
    bool evaluation, rewarded;
    double reward;
    struct str task, model, group; /* label `task`; pool or adapter; or absent */
    uint64_t turns, truncated, sampled, tokens;
    uint64_t run_us, spent_us[SPENDINGS];
    bool numbered;
    uint64_t oldest;
    struct str newest;
};

/* Measures a session that ends now, or has ended. Texts are borrowed from it. */
void session_measure(const struct session *s, uint64_t now_ms, struct session_measures *ret);

/* Writes the members time_s, turns, sampled_tokens and truncated_turns. */
void session_sums_put(const struct session *s, struct json_out *o);

/* Whether its first export since it ended is still to be counted, which is so once. */
bool session_take_uncounted(struct session *s);

/* From now on it is. */
void session_expect_export(struct session *s);

#endif
