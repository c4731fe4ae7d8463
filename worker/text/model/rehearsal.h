/*
 * Trials: random conversations with tools, calls, thoughts, late system messages and template
 * variables, each compared with the rendering of the whole chat. Loading a model makes a few, to
 * learn how much of a conversation its template needs after a turn. `rollgate check` makes more.
 */
#ifndef RG_MODEL_REHEARSAL_H
#define RG_MODEL_REHEARSAL_H

#include "worker/text/model/model_internal.h"
#include "worker/text/request/chat.h"

/* One random conversation. Everything is in the arena. */
struct trial_talk {
    struct json messages, tools, kwargs;
    struct chat chat;
    size_t covered; /* messages inside the checkpoint: the last of them is an assistant's */
};

/* Switches that known templates have. */
extern const char *const trial_switches[9];

struct trial_random {
    uint64_t state; /* must not be 0 */
};

/* Makes a conversation. Its kwargs are variables that the model's template mentions. */
void trial_talk(const struct model *m, struct trial_random *r, struct arena *a,
                struct trial_talk *ret);

struct trial_plan {
    uint64_t seed;
    size_t n;
    bool until_first; /* stop at the first conversation whose suffix is not the same */
};

/* Runs the trials and adds to *ret. `first` (may be NULL) gets the first conversation whose suffix
 * differs or fails, as JSON, with the result. */
void trial_run(const struct model *m, struct model_scratch *s, const struct trial_plan *plan,
               struct model_trials *ret, struct buf *first);

#endif
