/*
 * struct spooling: one session's export made in slices into a part file, and put under each
 * target's folder once it is whole (and synced, when that is asked for).
 */
#ifndef RG_SINK_SPOOLING_H
#define RG_SINK_SPOOLING_H

#include <stddef.h>
#include <stdint.h>

struct call_env;
struct err;
struct media_store;
struct session;
struct spooling;
struct syncer;
struct target;

enum spooling_end {
    SPOOLING_WHOLE,   /* the file is with every target */
    SPOOLING_NO_ROOM, /* the spool takes nothing, of any session */
    SPOOLING_FAILED,  /* this export was not made */
    SPOOLING_STUCK,   /* nor was this, and a helper is lost with it */
};

struct spooling_options {
    struct call_env *calls;
    const struct media_store *media;
    struct syncer *syncer; /* NULL: nothing is synced */
    const struct target *const *targets;
    size_t n_targets;
    uint32_t place;
    const char *state_dir;

    /* The end, and why it is none (NULL for SPOOLING_WHOLE). The spooling is freed by then. */
    void (*done)(void *ctx, enum spooling_end end, const struct err *why);
    void *ctx;
};

/* The session stays pinned meanwhile. NULL: done was called. */
struct spooling *spooling_start(const struct spooling_options *o, struct session *s);

/* The syncer has come so far; `failed` is an errno or 0. */
void spooling_synced(struct spooling *g, uint64_t ticket, int failed);

/* Stops it without `done`; the part file goes. NULL is fine. */
void spooling_stop(struct spooling *g);

#endif
