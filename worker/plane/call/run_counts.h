/*
 * struct run_end: a session that is about to end, measured for the figures of the run
 * (common/proc/run_board.h). Measured before its record is written, for it may be gone afterwards;
 * counted when that succeeded.
 */
#ifndef RG_CALL_RUN_COUNTS_H
#define RG_CALL_RUN_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/proc/run_board.h"
#include "worker/session/store/session.h"

struct call_env;

struct run_end {
    bool counts; /* false: it has ended before, or is a part of a copy */
    struct run_event event;
    struct run_ended ended;
    char names[RUN_LABELS][RUN_NAME_MAX];
};

/* An end that is stated (body of abort) has no other reason. */
void run_end_measure(struct run_end *x, const struct call_env *env, struct session *s,
                     enum session_end how, bool stated);
void run_end_count(const struct run_end *x, const struct call_env *env);

/* Counts what the first export of a session since it ended held, and no other one: tokens with
 * mask 1, trajectories, and those of them with drift. */
void run_count_export(const struct call_env *env, struct session *s, uint64_t trained,
                      uint64_t trajectories, uint64_t drifted);

/* The newest weight version that is known here is at least this one, if it is a number. */
void run_note_version(const struct call_env *env, struct str version);

#endif
