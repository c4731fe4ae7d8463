/*
 * struct engine_work: what an adapter makes of an answer and would hold the loop with, done by a
 * helper thread. Engines know nothing of helpers: who opens a pool says how it is done
 * (engine_options.helper); without, adapters do it on the spot.
 */
#ifndef RG_ENGINE_ENGINE_WORK_H
#define RG_ENGINE_ENGINE_WORK_H

#include <stdbool.h>

#include "common/base/str.h"

/* STUCK: it is still at it, and nothing that it uses may ever be freed, the work included. */
enum engine_work_end { ENGINE_WORK_DONE, ENGINE_WORK_FAILED, ENGINE_WORK_STUCK };

/* Embedded in its owner, zeroed; all but `job` is set by the owner. */
struct engine_work {
    void (*run)(struct engine_work *w); /* in a helper: touches what its owner owns alone */
    void (*done)(struct engine_work *w, enum engine_work_end end); /* on the loop */
    void (*drop)(struct engine_work *w); /* instead of done, when the helper has let go: frees it */
    bool is_long; /* by its bytes or tokens, it takes a helper several milliseconds: it leaves one
                     to others */
    void *job;    /* the helper's */
};

struct engine_helper {
    /* done follows, maybe at once; work of one session is done in order. */
    void (*begin)(void *ctx, struct engine_work *w, struct str session_id);

    /* Its owner gives it up before it is done: drop follows, maybe at once. */
    void (*drop)(void *ctx, struct engine_work *w);
};

#endif
