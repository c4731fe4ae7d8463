/* Shares of lost places (lost_places.h). */
#include "keeper/lost_places.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"

enum { LOAD_FULL = 1000, WAITS_PER_LEASE = 4 }; /* a full node waits a quarter of the lease */

struct lost_list {
    const struct seen_place **at;
    size_t n, cap;
};

/* The tokenizer of a place's sessions: of its owner, or without an owner of the node that made the
 * ids. NULL: no node says so. */
static const char *find_tokenizer(const struct fleet_view *v, const struct seen_place *p)
{
    const struct seen_block *b = fleet_view_block(v, p->index / FLEET_BLOCK_SIZE);
    const struct seen_node *n = fleet_view_node(v, p->owner[0] ? p->owner : b ? b->owner : "");

    return n && n->valid ? n->entry.tokenizer : NULL;
}

/* Returns why no node like this one claims the place, or NULL. */
static const char *find_obstacle(const struct fleet_view *v, const struct seen_place *p,
                                 const struct node_entry *self)
{
    const char *tokenizer = find_tokenizer(v, p);

    if (!p->whole)
        return "its owner has records that the store lacks";
    if (p->version > self->newest_record)
        return "its records have a newer version";
    if (!tokenizer)
        return "no node says which tokenizer its sessions have";
    if (strcmp(tokenizer, self->tokenizer) != 0)
        return "its sessions have another tokenizer";
    return NULL;
}

static bool is_adopter(const struct fleet_view *v, const struct seen_node *n,
                       const struct node_entry *self, uint64_t lease_ms)
{
    return n->valid && !n->entry.draining && strcmp(n->entry.tokenizer, self->tokenizer) == 0 &&
           !fleet_view_is_lost(v, n, lease_ms);
}

/* Counts the nodes that adopt, this one included, and those of them before this one in the order of
 * loads. */
static size_t count_adopters(const struct fleet_view *v, const struct lost_query *q,
                             size_t *ret_rank)
{
    struct map_slot *slot;
    size_t others = 0;

    *ret_rank = 0;
    for (size_t at = 0; (slot = map_next(&v->nodes, &at));) {
        const struct seen_node *n = slot->value;

        if (strcmp(n->name, v->self) == 0 || !is_adopter(v, n, q->self, q->lease_ms))
            continue;
        others++;
        *ret_rank += n->entry.load < q->self->load ||
                     (n->entry.load == q->self->load && strcmp(n->name, v->self) < 0);
    }
    return others + 1;
}

static int compare_places(const void *a, const void *b)
{
    const struct seen_place *const *x = a, *const *y = b;

    return (*x)->index < (*y)->index ? -1 : (*x)->index > (*y)->index;
}

/* Lists places that have no living owner and that this node may claim, by index. */
static void list_claimable(const struct fleet_view *v, const struct lost_query *q,
                           struct lost_list *ret, struct lost_choice *choice)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&v->places, &at));) {
        const struct seen_place *p = slot->value;
        uint64_t lost_ms = fleet_view_lost_ms(v, p, q->lease_ms);
        const char *obstacle;

        if (p->index == FLEET_DISPATCHER || p->vacant || p->stale ||
            strcmp(p->owner, v->self) == 0 || lost_ms == 0)
            continue;
        if (lost_ms > p->seen_ms) {
            lost_ms = fleet_view_silent_ms(v, p, q->lease_ms);
            choice->due_ms = choice->due_ms ? MIN_OF(choice->due_ms, lost_ms) : lost_ms;
            continue;
        }
        choice->unserved++;
        obstacle = find_obstacle(v, p, q->self);
        if (!obstacle) {
            *vec_push(ret) = p;
        } else if (!choice->why || p->index < choice->refused) {
            choice->why = obstacle;
            choice->refused = p->index;
        }
    }
    if (ret->n > 0)
        qsort(ret->at, ret->n, sizeof(*ret->at), compare_places);
}

void lost_places_choose(const struct fleet_view *v, const struct lost_query *q,
                        struct lost_choice *ret)
{
    uint64_t wait_ms =
        q->lease_ms * MIN_OF(q->self->load, (uint32_t)LOAD_FULL) / LOAD_FULL / WAITS_PER_LEASE;
    struct lost_list lost = {0};
    size_t adopters, rank, share;

    *ret = (struct lost_choice){0};
    list_claimable(v, q, &lost, ret);
    adopters = count_adopters(v, q, &rank);
    share = (lost.n + adopters - 1) / adopters;
    for (size_t i = 0; i < share && ret->n < MIN_OF(q->free, (size_t)LOST_CLAIMS_MAX); i++) {
        const struct seen_place *p = lost.at[(rank * share + i) % lost.n];
        uint64_t claim_ms = fleet_view_lost_ms(v, p, q->lease_ms) + wait_ms;

        if (claim_ms <= q->now_ms)
            ret->claims[ret->n++] = p->index;
        else
            ret->due_ms = ret->due_ms ? MIN_OF(ret->due_ms, claim_ms) : claim_ms;
    }
    if (lost.n > 0 && q->free == 0) {
        ret->why = "this node serves as many places as it can";
        ret->refused = lost.at[0]->index;
    }
    vec_done(&lost);
}
