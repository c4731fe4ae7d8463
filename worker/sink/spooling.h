/* struct spooling: writes exports of sessions into the spool, one at a time. Each export is written
 * to a .part file, which is then linked into each target's folder. */
#ifndef RG_SINK_SPOOLING_H
#define RG_SINK_SPOOLING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct call_env;
struct err;
struct media_store;
struct residency;
struct spooling;
struct target;

enum spooling_end {
    SPOOLING_WHOLE,      /* every target has the file */
    SPOOLING_NO_ROOM,    /* the spool's disk is full or fails, for all sessions */
    SPOOLING_FAILED,     /* this export failed */
    SPOOLING_UNREADABLE, /* the session cannot be read back */
    SPOOLING_DELETED,    /* the session was deleted */
    SPOOLING_CANCELLED,  /* the task was cancelled, since the worker ends */
};

struct spooling_options {
    struct call_env *calls;
    struct residency *residency;
    const struct media_store *media;
    const struct target *const *targets;
    size_t n_targets;
    const char *state_dir;
    bool durable; /* --durability power: each step is on disk before the next */

    /* Called when a helper thread hangs in the export. That call of spooling_run never returns. */
    void (*on_lost)(void *ctx);
    void *ctx;
};

/* Makes *ret. Copies *o; the objects in it must outlive it. Returns -1 and *e on error. */
RG_MUSTCHECK int spooling_new(const struct spooling_options *o, struct spooling **ret,
                              struct err *e);

/* Frees g. The task that ran it must have ended. Accepts NULL. */
void spooling_free(struct spooling *g);

/* Writes the session's export and links it for every target. Other ends than SPOOLING_WHOLE leave
 * no .part file and, except SPOOLING_DELETED, set *e. */
MAY_PAUSE enum spooling_end spooling_run(struct spooling *g, struct str session_id, struct err *e);

#endif
