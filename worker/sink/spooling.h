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

struct spooling_options {
    struct call_env *calls;
    const struct media_store *media;
    struct syncer *syncer; /* NULL: nothing is synced */
    const struct target *const *targets;
    size_t n_targets;
    uint32_t place;
    const char *state_dir;

    /* The end; err NULL: the file is with every target. The spooling is freed behind it. */
    void (*done)(void *ctx, const struct err *err);
    void *ctx;
};

/* The session stays pinned meanwhile. NULL: done was called. */
struct spooling *spooling_start(const struct spooling_options *o, struct session *s);

/* The syncer has come so far; `failed` is an errno or 0. */
void spooling_synced(struct spooling *g, uint64_t ticket, int failed);

/* Stops it without `done`; the part file goes. NULL is fine. */
void spooling_stop(struct spooling *g);

#endif
