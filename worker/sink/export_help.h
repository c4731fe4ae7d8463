/* Runs the long work of an export (export_run_work) in a helper thread. */
#ifndef RG_SINK_EXPORT_HELP_H
#define RG_SINK_EXPORT_HELP_H

#include "common/base/attrs.h"
#include "common/base/str.h"

struct err;
struct export;

/* Runs the work in a helper thread while the calling task waits. Jobs of one lane run in order.
 * Returns -1 if the task was cancelled or the work timed out. */
MAY_PAUSE RG_MUSTCHECK int export_help(struct export *x, struct str lane, struct err *e);

#endif
