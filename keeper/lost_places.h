/*
 * Which places of lost nodes this node claims. Pure: every node computes the same shares from the
 * same entries. A node with load waits before its claims, so the others are faster.
 */
#ifndef RG_KEEPER_LOST_PLACES_H
#define RG_KEEPER_LOST_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "keeper/fleet_view.h"

enum { LOST_CLAIMS_MAX = FLEET_OWN_MAX };

struct lost_query {
    const struct node_entry *self;
    uint64_t lease_ms, now_ms;
    size_t free; /* number of further places that this node can serve */
};

struct lost_choice {
    uint32_t claims[LOST_CLAIMS_MAX]; /* to claim now */
    size_t n;
    uint64_t due_ms;  /* when a place may be lost, or claimed after a wait; 0: none is near */
    size_t unserved;  /* places without a living owner */
    uint32_t refused; /* index of one of them that this node may not claim */
    const char *why;  /* reason of `refused`; NULL: no such place */
};

/* Chooses among the places in the view, except the dispatcher's. */
void lost_places_choose(const struct fleet_view *v, const struct lost_query *q,
                        struct lost_choice *ret);

#endif
