/*
 * Lanes: the groups of a runner, priority and queue that have a waiting rollout, and the order in
 * which they are claimed (book_next_rollout).
 *
 *            submitted                lane_begin                settled, or nothing waits
 *    group ------------> fresh ------------------------> begun ---------------------------> out
 *                                                       |     ^
 *                      none of its rollouts is claimable v     | its time has come, or a rollout
 *                                         resting, or aside    | waits again or was released
 *
 * `begun` is in the order of submission. It may contain groups without a claimable rollout.
 * book_next_rollout removes these when it finds them, so that not every claim checks them. A group
 * rests while its rollouts wait for the end of a back-off. A group whose waiting rollouts are all
 * reserved is in no list until one is released. An event that may make a rollout claimable puts its
 * group into `begun` again.
 */
#ifndef RG_DISPATCHER_BOOK_LANES_H
#define RG_DISPATCHER_BOOK_LANES_H

#include "dispatcher/book.h"

/* Enters a group that is new or has a waiting rollout, so that the next claim checks it. Does
 * nothing if no rollout waits. */
void lane_enter(struct group *g);

/* Removes the group from its lane if none of its rollouts waits, or if it has settled. */
void lane_leave(struct group *g);

/* Begins the group: makes its rollouts, unless it has them. */
void lane_begin(struct group *g);

#endif
