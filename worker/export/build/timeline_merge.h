/*
 * Merging of timelines (docs/sessions.md, section 3). Every answer of the session is a timeline:
 * its messages and itself. From the newest to the oldest, each is absorbed by the newest kept
 * timeline whose first messages equal all of its own. If the absorbed one wrote a message that the
 * keeper only has as context, the keeper takes its author, ids and logprobs.
 */
#ifndef RG_EXPORT_TIMELINE_MERGE_H
#define RG_EXPORT_TIMELINE_MERGE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct track_vec;
struct trajectory_input;

struct timeline_merge_rule {
    bool tokens; /* the ids of each message must be equal, too */
    bool ignore_tools;
};

struct timeline_merge;

/* Starts a merge. skip (may be NULL): by checkpoint id, answers that are not timelines (abandoned
 * by a retry). The merge and the authors of surviving tracks are in the arena. in->model may be
 * NULL unless merging by tokens. */
struct timeline_merge *merge_new(const struct trajectory_input *in,
                                 const struct timeline_merge_rule *rule, const uint8_t *skip,
                                 struct arena *a);

/* Places some of the timelines. Returns true while timelines are left. */
bool merge_next(struct timeline_merge *m);

/* Adds the survivors in commit order. */
void merge_survivors(const struct timeline_merge *m, struct track_vec *out);

/* Frees the memory outside the arena. Accepts NULL. */
void merge_done(struct timeline_merge *m);

#endif
