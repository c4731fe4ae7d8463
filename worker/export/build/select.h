/*
 * Chooses the trajectories of an export and their order: select, pick, merge, max_tokens, and the
 * owner of completions that several of them share.
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

/* A trajectory, or its end, that max_tokens or the format did not let through. */
struct dropped {
    const struct checkpoint *head;
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
    struct timeline_merge *merge; /* under way, or NULL */
    struct track_vec tracks;
    struct dropped_vec dropped;
    uint32_t textual; /* number of those that were captured as text */
    size_t unchosen;  /* branches that select=last or longest left out */
    uint32_t *owners; /* by checkpoint id, for train_once; else NULL */
};

/* Begins. A long merge is made in steps: selection_next until it says false; only then the rest of
 * the selection is there. Everything borrowed lives until selection_done, the authors of merged
 * tracks live in the arena. */
void selection_start(const struct trajectory_input *in, const struct export_options *o,
                     struct arena *a, struct selection *ret);
bool selection_next(const struct trajectory_input *in, const struct export_options *o,
                    struct selection *s);
void selection_done(struct selection *s);

/* Checks, as far as counts show, that every checkpoint of the selection was requested with the ids
 * before it; ERR_UNASSEMBLABLE. */
int selection_check(const struct selection *s, const struct session *session, struct err *e);

/* The first of its branches that has an answer without logprobs, from 0; tracks.n: none has. */
size_t selection_without_logprobs(const struct selection *s);

#endif
