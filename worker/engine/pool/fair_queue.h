/*
 * struct fair_queue: waiting calls, served in turns of their sessions. So a session with a hundred
 * waiting calls does not delay the first call of a different session. Items are embedded in their
 * owners. A zeroed struct is an empty queue.
 */
#ifndef RG_ENGINE_FAIR_QUEUE_H
#define RG_ENGINE_FAIR_QUEUE_H

#include "common/base/list.h"
#include "common/base/str.h"

struct fair_lane;
struct map;

/* A zeroed item is in no queue. */
struct fair_item {
    struct fair_lane *lane;
    struct list_item item; /* in its session's lane */
};

struct fair_queue {
    /* session id -> lane, only for sessions with items; NULL: no item was ever added */
    struct map *lanes;
    struct list_head row; /* lanes; the first one is served next */
    size_t n, n_lanes;    /* number of items; number of sessions with items */
};

/* Frees the queue. It must have no items. */
void fair_done(struct fair_queue *q);

/* Adds an item after the session's other items. */
void fair_push(struct fair_queue *q, struct fair_item *i, struct str session);

/* Returns the item that is served next, or NULL. */
struct fair_item *fair_first(const struct fair_queue *q);

/* Returns the number of waiting items of the session. */
size_t fair_waiting(const struct fair_queue *q, struct str session);

/* Returns the item that must leave a full queue for one more item of the session: the newest of a
 * different session that has more than its share of `capacity`. NULL: the session itself has its
 * share already, or there are more sessions than places. Reads all sessions only if there is such a
 * session. */
struct fair_item *fair_surplus(const struct fair_queue *q, struct str session, size_t capacity);

/* Removes an item. If it was its session's turn, the session goes to the end of the row. Items that
 * do not wait are accepted. */
void fair_take(struct fair_queue *q, struct fair_item *i);

#endif
