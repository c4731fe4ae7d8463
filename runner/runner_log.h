/*
 * How the runner's process shows itself: its log, its faults at the start, its title in `ps`.
 */
#ifndef RG_RUNNER_RUNNER_LOG_H
#define RG_RUNNER_RUNNER_LOG_H

#include "common/base/buf.h"
#include "common/base/str.h"

/* Sets log and title. `level` and `format` are the settings, or NULL for the defaults; a wrong one
 * adds a line to `mistakes`. */
void runner_log_begin(const char *level, const char *format, struct buf *mistakes);

/* Prints a fault of the command: as a line of its log if that is JSON. */
void runner_log_fault(const char *subject, const char *reason);

/* Prints what is wrong with the arguments, one line a fault. */
void runner_log_mistakes(struct str lines);

#endif
