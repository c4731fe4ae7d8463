/*
 * Lanes: which groups of a runner, priority and queue have a rollout that waits, and which of them
 * may be claimed next (book_next_rollout).
 *
 *            submitted                lane_begin                settled, or nothing waits
 *    group ------------> fresh ------------------------> begun ---------------------------> out
 *                                                       |     ^
 *                      none of its rollouts is claimable v     | its time has come, or a rollout
 *                                         resting, or aside    | waits anew or was released
 *
 * `begun` is by submission. It may have groups of which nothing may be claimed: book_next_rollout,
 * which finds that out, takes them from it, so each is looked at once and not by every claim. Those
 * that wait for a back-off's end rest; those whose waiting rollouts are all reserved are in no list
 * until one is released. Whatever may make a rollout claimable puts its group into `begun` again.
 */
#ifndef RG_DISPATCHER_BOOK_LANES_H
#define RG_DISPATCHER_BOOK_LANES_H

#include "dispatcher/book.h"

/* A rollout of the group has come to wait, or the group itself is new: it is looked at by the next
 * claim. Does nothing if none waits. */
void lane_enter(struct group *g);

/* A rollout has ceased to wait, or the group has settled: it leaves if none waits any more. */
void lane_leave(struct group *g);

/* Makes the group's rollouts, if there are none: it is begun. */
void lane_begin(struct group *g);

#endif
