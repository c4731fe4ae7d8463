/* The long work of an export (export_run_work) in a helper thread, for a task. */
#ifndef RG_SINK_EXPORT_HELP_H
#define RG_SINK_EXPORT_HELP_H

#include "common/base/attrs.h"
#include "common/base/str.h"

struct err;
struct export;

/* Waits for it, in the order of the lane's jobs. */
MAY_PAUSE RG_MUSTCHECK int export_help(struct export *x, struct str lane, struct err *e);

#endif
