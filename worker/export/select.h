/*
 * Which trajectories an export holds and in which order: select, pick, merge, max_tokens, and who
 * trains completions that several of them share.
 */
#ifndef RG_EXPORT_SELECT_H
#define RG_EXPORT_SELECT_H

#include "worker/export/export.h"
#include "worker/export/merge.h"

/* A trajectory, or its end, that max_tokens or the format did not let through. */
struct dropped {
    const struct turn *head;
    uint32_t tokens;    /* without the cut */
    uint32_t turns_cut; /* all of them: the trajectory is gone */
    bool gone;
    const char *reason;
};

struct dropped_vec {
    struct dropped *at;
    size_t n, cap;
};

struct selection {
    struct track_vec tracks;
    struct dropped_vec dropped;
    uint32_t *owners; /* by turn id, for train_once; else NULL */
};

/* Authors of merged tracks live in the arena. selection_done frees the rest. */
void selection_make(const struct trajectory_input *in, const struct export_options *o,
                    struct arena *a, struct selection *ret);

/* Drops the trajectories that were captured as text, for formats made of tokens. */
void selection_drop_text(struct selection *s);
void selection_done(struct selection *s);

#endif
