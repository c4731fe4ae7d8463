/*
 * Log, messages at the start, and the title in `ps` of the runner's process.
 */
#ifndef RG_RUNNER_RUNNER_LOG_H
#define RG_RUNNER_RUNNER_LOG_H

#include "common/base/buf.h"
#include "common/base/str.h"

/* Sets log and title. `level` and `format` are the settings, or NULL for the defaults. A wrong one
 * adds a line to `mistakes`. */
void runner_log_begin(const char *level, const char *format, struct buf *mistakes);

/* Prints a fault of the command. If the log is JSON, the fault is a line of the log. */
void runner_log_fault(const char *subject, const char *reason);

/* Prints the mistakes in the arguments, one line for each. */
void runner_log_mistakes(struct str lines);

#endif
