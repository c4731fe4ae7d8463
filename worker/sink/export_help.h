/*
 * The long work of an export (export_has_work), done by a helper thread in the order of its
 * session's work, so that nobody else waits while a long history is audited. While a helper has it,
 * nobody else touches the export.
 */
#ifndef RG_SINK_EXPORT_HELP_H
#define RG_SINK_EXPORT_HELP_H

#include <stdbool.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct call_env;
struct err;
struct export;
struct export_help;

/* One of them, on the loop; the help is over then. */
struct export_help_events {
    /* export_next may go on; e: it failed. `stuck`: the helper never lets go, so nothing that it
     * may still read is freed, by nobody, ever. */
    void (*done)(void *ctx, const struct err *e, bool stuck);
    /* It was given up (export_help_leave), and the helper has let go. */
    void (*left)(void *ctx);
};

/* Has it done. NULL: it is done already, for there are no helpers. */
struct export_help *export_help_begin(struct call_env *env, struct export *x, struct str session_id,
                                      const struct export_help_events *events, void *ctx);

/* Has it done for a task, in the order of the lane's jobs. */
MAY_PAUSE RG_MUSTCHECK int export_help_await(struct export *x, struct str lane, struct err *e);

/* Gives it up: `left` follows, at once maybe. */
void export_help_leave(struct export_help *h);

#endif
