/*
 * A lane is a session's waiting items, in order; lanes form a row:
 *
 *   row    lane A ---- lane B ---- lane C        the first one is served next
 *            a1          b1          c1
 *            a2                      c2
 *
 * Removing the item that is served next moves its lane to the end of the row, so sessions take
 * turns however many items each has. A lane exists while it has items. Every step except
 * fair_surplus takes constant time.
 */
#include "worker/engine/pool/fair_queue.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/map.h"
#include "common/base/mem.h"

struct fair_lane {
    struct list_item item; /* in queue->row */
    struct list_head items;
    size_t n; /* items */
    size_t len;
    char session[];
};

void fair_done(struct fair_queue *q)
{
    CHECK(q->n == 0);
    if (q->lanes)
        map_done(q->lanes);
    free(q->lanes);
    q->lanes = NULL;
}

/* Returns the session's lane; NULL: none of its items wait. */
static struct fair_lane *lane_find(const struct fair_queue *q, struct str session)
{
    return q->lanes ? map_get(q->lanes, session) : NULL;
}

static struct fair_lane *lane_of(struct fair_queue *q, struct str session)
{
    struct fair_lane *l = lane_find(q, session);

    if (l)
        return l;
    if (!q->lanes)
        q->lanes = mem_zalloc(sizeof(*q->lanes));
    l = mem_zalloc(sizeof(*l) + session.len);
    l->len = session.len;
    if (session.len > 0)
        memcpy(l->session, session.p, session.len);
    (void)map_set(q->lanes, str_of(l->session, l->len), l);
    list_append(&q->row, &l->item);
    q->n_lanes++;
    return l;
}

void fair_push(struct fair_queue *q, struct fair_item *i, struct str session)
{
    struct fair_lane *l = lane_of(q, session);

    i->lane = l;
    list_append(&l->items, &i->item);
    l->n++;
    q->n++;
}

struct fair_item *fair_first(const struct fair_queue *q)
{
    const struct fair_lane *l = LIST_FIRST_OF(&q->row, struct fair_lane, item);

    return l ? LIST_FIRST_OF(&l->items, struct fair_item, item) : NULL;
}

size_t fair_waiting(const struct fair_queue *q, struct str session)
{
    const struct fair_lane *l = lane_find(q, session);

    return l ? l->n : 0;
}

struct fair_item *fair_surplus(const struct fair_queue *q, struct str session, size_t capacity)
{
    size_t own = fair_waiting(q, session);
    size_t share = capacity / (q->n_lanes + (own == 0));
    const struct fair_lane *l = LIST_LAST_OF(&q->row, struct fair_lane, item);

    if (own >= share)
        return NULL;
    while (l && l->n <= share)
        l = LIST_PREV_OF(&q->row, l, struct fair_lane, item);
    return l ? LIST_LAST_OF(&l->items, struct fair_item, item) : NULL;
}

void fair_take(struct fair_queue *q, struct fair_item *i)
{
    struct fair_lane *l = i->lane;
    bool turn = i == fair_first(q);

    if (!l)
        return;
    list_remove(&i->item);
    *i = (struct fair_item){0};
    q->n--;
    l->n--;
    if (l->n == 0) {
        list_remove(&l->item);
        q->n_lanes--;
        (void)map_take(q->lanes, str_of(l->session, l->len));
        free(l);
    } else if (turn) {
        list_remove(&l->item);
        list_append(&q->row, &l->item);
    }
}
