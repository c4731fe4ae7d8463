/*
 * Timelines merged (spec sessions, 5.4): every answer of the session is a timeline, its messages
 * and itself. From the newest to the oldest, one is absorbed by the newest kept one whose first
 * messages equal all of its own; where it wrote a message that the keeper only saw, the keeper
 * takes author, ids and logprobs.
 */
#ifndef RG_EXPORT_MERGE_H
#define RG_EXPORT_MERGE_H

#include "common/base/vec.h"
#include "worker/export/trajectory.h"

struct track_vec {
    struct track *at;
    size_t n, cap;
};

struct merge_rule {
    bool tokens; /* also the ids of each message must be equal */
    bool ignore_tools;
};

/* Pushes the survivors in commit order; their authors live in the arena. in->model may be NULL
 * when not by tokens. */
void merge_timelines(const struct trajectory_input *in, const struct merge_rule *rule,
                     struct arena *a, struct track_vec *out);

#endif
