/*
 * struct branch: one trajectory-to-be: a generated checkpoint and the path behind it. What an
 * export walks over; borrowed from the session, valid while it is pinned.
 */
#ifndef RG_SESSION_BRANCH_H
#define RG_SESSION_BRANCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/session/forest/checkpoint.h"

struct checkpoint;
struct session;

struct branch {
    struct checkpoint *head;
    uint32_t seq;       /* export order */
    const char *reason; /* materialization_reason, or NULL */
    struct checkpoint
        *tail; /* context of this checkpoint stands behind the head, though its answer is gone */
    uint32_t tail_end; /* with it: the branch is the first so many ids of the tail's path */
};

struct branch_vec {
    struct branch *at;
    size_t n, cap;
};

/* Whether the answer is of the session's own history: the policy's, or of the pool that the session
 * was made for. What others answered (a judge that its agent asked) is in no branch. */
bool session_keeps_pool(const struct session *s, const struct checkpoint *t);

/* How many ids it has. */
static inline uint32_t branch_total(const struct branch *b)
{
    return b->tail ? b->tail_end : b->head->total;
}

/* The session's branches under its policy, in export order (the last one is the latest
 * interaction). Caller's: vec_done. */
void session_branches(struct session *s, struct branch_vec *out);

/* Every visible checkpoint as a branch of its own, in commit order. */
void session_checkpoints(struct session *s, struct branch_vec *out);

#endif
