/*
 * Chooses the trajectories of an export and their order: select, pick, merge, max_tokens, and the
 * owner of each completion that several of them contain.
 */
#ifndef RG_EXPORT_SELECT_H
#define RG_EXPORT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/export/build/track.h"

struct arena;
struct checkpoint;
struct err;
struct export_options;
struct session;
struct timeline_merge;
struct trajectory_input;

/* A trajectory that max_tokens or the format has cut or removed. */
struct dropped {
    const struct checkpoint *head;
    uint32_t tokens;    /* number of tokens without the cut */
    uint32_t turns_cut; /* number of removed turns; all of them: the trajectory is removed */
    bool gone;
    const char *reason;
};

struct dropped_vec {
    struct dropped *at;
    size_t n, cap;
};

struct selection {
    struct timeline_merge *merge; /* merge in progress, or NULL */
    struct track_vec tracks;
    struct dropped_vec dropped;
    uint32_t textual; /* number of tracks that were captured as text */
    size_t unchosen;  /* number of branches that select=last or longest left out */
    uint32_t *owners; /* by checkpoint id, for train_once; else NULL */
};

/* Begins a selection. A long merge is done in steps: call selection_next until it returns false;
 * the rest of the selection is complete only then. Everything borrowed must live until
 * selection_done. The authors of merged tracks are in the arena. */
void selection_start(const struct trajectory_input *in, const struct export_options *o,
                     struct arena *a, struct selection *ret);
bool selection_next(const struct trajectory_input *in, const struct export_options *o,
                    struct selection *s);
void selection_done(struct selection *s);

/* Checks, as far as counts show, that every checkpoint of the selection was requested with the ids
 * before it. Fails with ERR_UNASSEMBLABLE. */
int selection_check(const struct selection *s, const struct session *session, struct err *e);

/* Returns the index of the first branch with an answer without logprobs; tracks.n: there is
 * none. */
size_t selection_without_logprobs(const struct selection *s);

#endif
