/*
 * struct run_end: the figures that a session's end adds to the totals of the run
 * (common/proc/run_board.h). They are measured before the end's record is written, because the
 * session may be freed afterwards, and counted when the write succeeded.
 */
#ifndef RG_CALL_RUN_COUNTS_H
#define RG_CALL_RUN_COUNTS_H

#include <stdbool.h>

#include "worker/session/store/session.h"

struct call_env;
struct run_board;
struct run_end;

/* Returns the figures of the run, or NULL in a process without a board. */
struct run_board *call_run_board(const struct call_env *env);

/* Measures the end of a session. With a stated reason (body of abort) no other reason counts.
 * Returns NULL if the end does not count: the session has ended before, or is part of a copy. */
struct run_end *run_end_measure(const struct call_env *env, struct session *s, enum session_end how,
                                bool stated);

/* Counts and frees a measured end. Accepts NULL. */
void run_end_count(struct run_end *x, const struct call_env *env);
void run_end_free(struct run_end *x);

#endif
