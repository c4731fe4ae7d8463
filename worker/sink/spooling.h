/* struct spooling: writes exports of sessions into the spool, one at a time: to a part file, which
 * then gets a name in each target's folder. */
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
    SPOOLING_WHOLE,      /* the file is with every target */
    SPOOLING_NO_ROOM,    /* the spool takes nothing, of any session */
    SPOOLING_FAILED,     /* this export was not made */
    SPOOLING_UNREADABLE, /* the journal does not give the session back */
    SPOOLING_DELETED,    /* the session is gone */
    SPOOLING_CANCELLED,  /* the worker ends */
};

struct spooling_options {
    struct call_env *calls;
    struct residency *residency;
    const struct media_store *media;
    const struct target *const *targets;
    size_t n_targets;
    const char *state_dir;
    bool durable; /* each step is on disk before the next */

    /* A helper thread is lost with the export: the call of spooling_run never returns. */
    void (*on_lost)(void *ctx);
    void *ctx;
};

RG_MUSTCHECK int spooling_new(const struct spooling_options *o, struct spooling **ret,
                              struct err *e);

/* The task that ran it has ended. NULL is accepted. */
void spooling_free(struct spooling *g);

/* Spools the session. Other ends than SPOOLING_WHOLE leave no file, and set *e. */
MAY_PAUSE enum spooling_end spooling_run(struct spooling *g, struct str session_id, struct err *e);

#endif
