/*
 * struct fair_queue: calls that wait, served in turns of their sessions: a session with a hundred
 * waiting calls does not keep another one's first call back. Items are embedded in their owners.
 * A zeroed struct is an empty queue.
 */
#ifndef RG_ENGINE_FAIR_QUEUE_H
#define RG_ENGINE_FAIR_QUEUE_H

#include "common/base/list.h"
#include "common/base/str.h"

struct fair_lane;
struct map;

/* A zeroed item waits nowhere. */
struct fair_item {
    struct fair_lane *lane;
    struct list_item item; /* in its lane */
};

struct fair_queue {
    struct map *lanes;    /* session id -> lane, those with items only; NULL: none ever had */
    struct list_head row; /* lanes; the first has the turn */
    size_t n, n_lanes;    /* items; sessions with items */
};

/* No item may be left. */
void fair_done(struct fair_queue *q);

/* Adds an item after the session's other items. */
void fair_push(struct fair_queue *q, struct fair_item *i, struct str session);

/* Whose turn it is, or NULL. */
struct fair_item *fair_first(const struct fair_queue *q);

/* How many items of the session wait. */
size_t fair_waiting(const struct fair_queue *q, struct str session);

/* A full queue is shared: the item that gives way to one more of the session, the newest of another
 * session that has more than its share of `capacity`. NULL: the session has its own share already,
 * or there are more sessions than places. Looks at all sessions only when there is one. */
struct fair_item *fair_surplus(const struct fair_queue *q, struct str session, size_t capacity);

/* Takes an item out; its session goes to the end of the row when it was its turn. Items that do
 * not wait are accepted. */
void fair_take(struct fair_queue *q, struct fair_item *i);

#endif
