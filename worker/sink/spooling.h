/* struct spooling: writes exports of sessions into the spool, one at a time. Each export is written
 * to a .part file, which is then linked into each target's folder. */
#ifndef RG_SINK_SPOOLING_H
#define RG_SINK_SPOOLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"

struct call_env;
struct disk_wait;
struct err;
struct media_store;
struct part_file;
struct residency;
struct target;

enum spooling_end {
    SPOOLING_WHOLE,      /* every target has the file */
    SPOOLING_NO_ROOM,    /* the spool's disk is full or fails, for all sessions */
    SPOOLING_FAILED,     /* this export failed */
    SPOOLING_UNREADABLE, /* the session cannot be read back */
    SPOOLING_DELETED,    /* the session was deleted */
    SPOOLING_CANCELLED,  /* the task was cancelled, since the worker ends */
};

struct spooling {
    struct call_env *calls;
    struct residency *residency;
    const struct media_store *media;
    const struct target *const *targets;
    size_t n_targets;
    const char *state_dir;

    /* set by the functions below */
    struct disk_wait *disk; /* owned; waits of --durability power */
    struct part_file *file; /* the present .part file */
    uint32_t place;         /* index of the place of its session */
};

/* Opens a spooling whose members up to state_dir are set. durable: each step is on disk before the
 * next. */
RG_MUSTCHECK int spooling_open(struct spooling *g, bool durable, struct err *e);

/* Accepts a zeroed struct. The task that ran it must have ended. */
void spooling_done(struct spooling *g);

/* Writes the session's export and links it for every target. Other ends than SPOOLING_WHOLE leave
 * no .part file and, except SPOOLING_DELETED, set *e. */
MAY_PAUSE enum spooling_end spooling_run(struct spooling *g, struct str session_id, struct err *e);

/* Removes the .part file of an export in which a helper thread hangs. That call of spooling_run
 * never returns. Does not free the export, because the thread may still use it. */
void spooling_close_file(struct spooling *g);

#endif
