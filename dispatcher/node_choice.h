/*
 * struct node_choice: which node of a fleet makes the session of the next attempt. Loads are those
 * that the nodes publish with their beats, and what was placed on them since. Pure, except that it
 * reads place table and board.
 */
#ifndef RG_DISPATCHER_NODE_CHOICE_H
#define RG_DISPATCHER_NODE_CHOICE_H

#include <stdint.h>

#include "common/fleet/place_table.h"

struct heritage;

/* A zeroed struct is valid. */
struct node_choice {
    struct {
        uint32_t sessions, calls;  /* published when the first of `placed` was placed */
        uint32_t placed;           /* sessions since then */
        uint64_t avoided_until_ms; /* monotonic: the node makes no session before */
    } nodes[FLEET_NODES_MAX];      /* by slot */

    uint32_t turn; /* slot that is preferred if loads are equal */
};

/* Returns the slot of the node with the least load that is up, not full and not avoided.
 * FLEET_NO_NODE: there is none. */
uint32_t node_choice_find(const struct node_choice *c, const struct heritage *h, uint64_t now_ms);

/* Counts a session that is made at the node. */
void node_choice_count(struct node_choice *c, const struct heritage *h, uint32_t slot);

/* Avoids the node for a second, because it could not make a session. */
void node_choice_avoid(struct node_choice *c, uint32_t slot, uint64_t now_ms);

#endif
