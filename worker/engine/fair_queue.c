#include "worker/engine/fair_queue.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"

struct fair_lane {
    struct fair_lane *next, *prev;
    struct fair_item *first, *last;
    size_t n; /* items */
    size_t len;
    char session[];
};

void fair_done(struct fair_queue *q)
{
    CHECK(q->n == 0);
    map_done(&q->lanes);
}

static void link_last(struct fair_queue *q, struct fair_lane *l)
{
    l->next = NULL;
    l->prev = q->last;
    if (q->last)
        q->last->next = l;
    else
        q->first = l;
    q->last = l;
}

static void unlink_lane(struct fair_queue *q, struct fair_lane *l)
{
    if (l->prev)
        l->prev->next = l->next;
    else
        q->first = l->next;
    if (l->next)
        l->next->prev = l->prev;
    else
        q->last = l->prev;
}

static struct fair_lane *lane_of(struct fair_queue *q, struct str session)
{
    struct fair_lane *l = map_get(&q->lanes, session);

    if (l)
        return l;
    l = mem_zalloc(sizeof(*l) + session.len);
    l->len = session.len;
    if (session.len > 0)
        memcpy(l->session, session.p, session.len);
    (void)map_set(&q->lanes, str_of(l->session, l->len), l);
    link_last(q, l);
    q->n_lanes++;
    return l;
}

void fair_push(struct fair_queue *q, struct fair_item *i, struct str session)
{
    struct fair_lane *l = lane_of(q, session);

    i->lane = l;
    i->next = NULL;
    i->prev = l->last;
    if (l->last)
        l->last->next = i;
    else
        l->first = i;
    l->last = i;
    l->n++;
    q->n++;
}

struct fair_item *fair_first(const struct fair_queue *q)
{
    return q->first ? q->first->first : NULL;
}

size_t fair_waiting(const struct fair_queue *q, struct str session)
{
    const struct fair_lane *l = map_get(&q->lanes, session);

    return l ? l->n : 0;
}

struct fair_item *fair_surplus(const struct fair_queue *q, struct str session, size_t capacity)
{
    size_t own = fair_waiting(q, session);
    size_t share = capacity / (q->n_lanes + (own == 0));
    const struct fair_lane *l = q->last;

    if (own >= share)
        return NULL;
    while (l && l->n <= share)
        l = l->prev;
    return l ? l->last : NULL;
}

void fair_take(struct fair_queue *q, struct fair_item *i)
{
    struct fair_lane *l = i->lane;
    bool turn = l && l == q->first && l->first == i;

    if (!l)
        return;
    if (i->prev)
        i->prev->next = i->next;
    else
        l->first = i->next;
    if (i->next)
        i->next->prev = i->prev;
    else
        l->last = i->prev;
    *i = (struct fair_item){0};
    q->n--;
    l->n--;
    if (!l->first) {
        unlink_lane(q, l);
        q->n_lanes--;
        (void)map_take(&q->lanes, str_of(l->session, l->len));
        free(l);
    } else if (turn) {
        unlink_lane(q, l);
        link_last(q, l);
    }
}
