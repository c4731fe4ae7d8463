/*
 * struct run_end: a session that is about to end, measured for the figures of the run
 * (common/proc/run_board.h). Measured before its record is written, for it may be gone afterwards;
 * counted when that succeeded.
 */
#ifndef RG_CALL_RUN_COUNTS_H
#define RG_CALL_RUN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/session/store/session.h"

struct call_env;
struct run_end;

/* Measures an end; one that is stated (body of abort) has no other reason. Returns NULL if it does
 * not count: the session has ended before, or is a part of a copy. */
struct run_end *run_end_measure(const struct call_env *env, struct session *s, enum session_end how,
                                bool stated);

/* Counts and frees it. NULL is fine. */
void run_end_count(struct run_end *x, const struct call_env *env);
void run_end_free(struct run_end *x);

#endif
