/*
 * Timelines merged (docs/sessions.md, section 3): every answer of the session is a timeline, its
 * messages and itself. From the newest to the oldest, one is absorbed by the newest kept one whose
 * first messages equal all of its own; where it wrote a message that the keeper only saw, the
 * keeper takes author, ids and logprobs.
 */
#ifndef RG_EXPORT_TIMELINE_MERGE_H
#define RG_EXPORT_TIMELINE_MERGE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct track_vec;
struct trajectory_input;

struct timeline_merge_rule {
    bool tokens; /* also the ids of each message must be equal */
    bool ignore_tools;
};

struct timeline_merge;

/* skip, when given: by checkpoint id, answers that are no timelines (given up by a retry). The
 * authors of what survives live in the arena, and so does the merge. in->model may be NULL when not
 * by tokens. */
struct timeline_merge *merge_new(const struct trajectory_input *in,
                                 const struct timeline_merge_rule *rule, const uint8_t *skip,
                                 struct arena *a);

/* Places some of the timelines; true while there are more. */
bool merge_next(struct timeline_merge *m);

/* Pushes the survivors in commit order. */
void merge_survivors(const struct timeline_merge *m, struct track_vec *out);

/* Frees what lives outside the arena; NULL is fine. */
void merge_done(struct timeline_merge *m);

#endif
