/*
 * book_next_rollout searches the lanes of a runner, the highest priority first. In a lane it
 * chooses the earliest begun group that has a claimable rollout, otherwise the earliest fresh
 * group.
 */
#include "dispatcher/book_lanes.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

static struct lane *find_lane(struct runner *r, int64_t priority, const struct queue *q)
{
    struct lane *l;
    size_t at = 0;

    while (at < r->lanes.n && r->lanes.at[at]->priority > priority)
        at++;
    for (; at < r->lanes.n && r->lanes.at[at]->priority == priority; at++)
        if (r->lanes.at[at]->queue == q)
            return r->lanes.at[at];
    l = mem_zalloc(sizeof(*l));
    l->priority = priority;
    l->queue = q;
    (void)vec_push(&r->lanes);
    memmove(&r->lanes.at[at + 1], &r->lanes.at[at], (r->lanes.n - 1 - at) * sizeof(l));
    r->lanes.at[at] = l;
    return l;
}

/* Inserts the group after the last group that was submitted earlier. The search goes backwards from
 * `before`; NULL: from the end of the list. */
static void list_by_seq(struct list_head *list, struct group *before, struct group *g)
{
    while (before && before->seq > g->seq)
        before = LIST_PREV_OF(list, before, struct group, lane_entry);
    if (before)
        list_insert(&before->lane_entry, &g->lane_entry);
    else
        list_prepend(list, &g->lane_entry);
}

static bool group_waits(const struct group *g)
{
    return g->waiting > 0 && !group_settled(g);
}

static void leave_list(struct group *g)
{
    list_remove(&g->lane_entry);
    g->resting = false;
}

/* Most groups are inserted at the end. */
void lane_enter(struct group *g)
{
    struct lane *l = find_lane(g->runner, g->spec.priority, g->queue);
    struct list_head *list = g->rollouts ? &l->begun : &l->fresh;

    if (!group_waits(g))
        return;
    l->waiting += !g->in_lane;
    g->in_lane = true;
    if (g->resting)
        leave_list(g);
    if (!list_holds(&g->lane_entry))
        list_by_seq(list, LIST_LAST_OF(list, struct group, lane_entry), g);
}

void lane_leave(struct group *g)
{
    if (group_waits(g) || !g->in_lane)
        return;
    find_lane(g->runner, g->spec.priority, g->queue)->waiting--;
    g->in_lane = false;
    leave_list(g);
}

void lane_begin(struct group *g)
{
    if (g->rollouts)
        return;
    leave_list(g);
    group_begin(g);
    lane_enter(g);
}

void book_reserve(struct rollout *r)
{
    r->reserved = true;
}

void book_release(struct rollout *r)
{
    r->reserved = false;
    lane_enter(r->group);
}

/* --- begun groups without a claimable rollout --- */

static void put_aside(struct lane *l, struct group *g)
{
    uint64_t due = group_due_ms(g);

    leave_list(g);
    if (due == UINT64_MAX)
        return;
    l->due_ms = list_is_empty(&l->resting) ? due : MIN_OF(l->due_ms, due);
    g->resting = true;
    g->due_ms = due;
    list_append(&l->resting, &g->lane_entry);
}

static int by_seq(const void *a, const void *b)
{
    const struct group *x = *(struct group *const *)a, *y = *(struct group *const *)b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* Moves groups whose back-off is over from `resting` to `begun`. They are sorted first, so that one
 * walk finds all their positions. */
static void wake_groups(struct lane *l, uint64_t wall_ms)
{
    VEC(struct group *) due = {0};
    struct group *g, *next, *before;

    if (list_is_empty(&l->resting) || l->due_ms > wall_ms)
        return;
    l->due_ms = UINT64_MAX;
    LIST_EACH_SAFE(&l->resting, g, next, struct group, lane_entry) {
        if (g->due_ms > wall_ms) {
            l->due_ms = MIN_OF(l->due_ms, g->due_ms);
            continue;
        }
        leave_list(g);
        *vec_push(&due) = g;
    }
    if (due.n > 0)
        qsort(due.at, due.n, sizeof(*due.at), by_seq);
    before = LIST_LAST_OF(&l->begun, struct group, lane_entry);
    while (due.n > 0) {
        g = vec_pop(&due);
        list_by_seq(&l->begun, before, g);
        before = LIST_PREV_OF(&l->begun, g, struct group, lane_entry);
    }
    vec_done(&due);
}

/* --- choosing the next rollout --- */

static bool is_claimable(const struct rollout *r, uint64_t wall_ms)
{
    return r->state == ROLLOUT_WAITING && !r->reserved && r->not_before_ms <= wall_ms;
}

/* Returns the group's first claimable rollout. A rollout that this executor failed last is chosen
 * only if there is no other. */
static struct rollout *pick_rollout(struct group *g, struct str executor, uint64_t wall_ms)
{
    struct rollout *second = NULL;

    lane_begin(g);
    for (uint32_t i = 0; i < group_rollouts(g); i++) {
        struct rollout *r = &g->rollouts[i];

        if (!is_claimable(r, wall_ms))
            continue;
        if (!r->avoid || !str_eq_c(executor, r->avoid))
            return r;
        if (!second)
            second = r;
    }
    return second;
}

/* Picks a claimable rollout of the lane's first begun group that has one. */
static struct rollout *pick_begun(struct lane *l, struct str executor, uint64_t wall_ms)
{
    struct rollout *m = NULL;
    struct group *g;

    wake_groups(l, wall_ms);
    while (!m && (g = LIST_FIRST_OF(&l->begun, struct group, lane_entry)) != NULL) {
        m = pick_rollout(g, executor, wall_ms);
        if (!m)
            put_aside(l, g);
    }
    return m;
}

/* Returns the group that was submitted first. Either may be NULL. */
static struct group *earlier_group(struct group *a, struct group *b)
{
    return !a || (b && b->seq < a->seq) ? b : a;
}

static struct rollout *earlier_rollout(struct rollout *a, struct rollout *b)
{
    return !a || (b && b->group->seq < a->group->seq) ? b : a;
}

struct rollout *book_next_rollout(struct book *b, struct runner *r, struct str executor,
                                  uint64_t wall_ms, book_closed_fn closed, void *ctx)
{
    (void)b;
    for (size_t i = 0; i < r->lanes.n;) {
        int64_t priority = r->lanes.at[i]->priority;
        struct rollout *begun = NULL;
        struct group *fresh = NULL;

        for (; i < r->lanes.n && r->lanes.at[i]->priority == priority; i++) {
            struct lane *l = r->lanes.at[i];

            if (l->queue && closed(ctx, l->queue))
                continue;
            begun = earlier_rollout(begun, pick_begun(l, executor, wall_ms));
            fresh = earlier_group(fresh, LIST_FIRST_OF(&l->fresh, struct group, lane_entry));
        }
        if (begun)
            return begun;
        if (fresh)
            return pick_rollout(fresh, executor, wall_ms);
    }
    return NULL;
}
