/*
 * struct branch: a trajectory to export: a generated checkpoint and the path before it. Borrowed
 * from the session, valid while that is pinned.
 */
#ifndef RG_SESSION_BRANCH_H
#define RG_SESSION_BRANCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/session/forest/checkpoint.h"

struct session;

struct branch {
    struct checkpoint *head;
    uint32_t seq;            /* position in the export's order */
    const char *reason;      /* materialization_reason, or NULL */
    struct checkpoint *tail; /* checkpoint whose context continues after the head although its
                                answer is gone; or NULL */
    uint32_t tail_end;       /* with a tail: the branch is so many leading ids of the tail's path */
};

struct branch_vec {
    struct branch *at;
    size_t n, cap;
};

/* Reports whether the answer belongs to the session's own history: of the policy, or of the pool
 * that the session was made for. Answers of others (a judge that its agent asked) are in no
 * branch. */
bool session_keeps_pool(const struct session *s, const struct checkpoint *t);

/* Returns the number of the branch's ids. */
static inline uint32_t branch_total(const struct branch *b)
{
    return b->tail ? b->tail_end : b->head->total;
}

/* Appends the session's branches under its policy, in export order (the last one is the latest
 * interaction). The caller frees `out` with vec_done. */
void session_branches(struct session *s, struct branch_vec *out);

/* Appends every visible checkpoint as a branch of its own, in commit order. */
void session_checkpoints(struct session *s, struct branch_vec *out);

#endif
