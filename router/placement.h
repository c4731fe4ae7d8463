/*
 * Where new sessions are made: on the node that gets the request, unless that one is full or has
 * much more to do than the fleet. Pure but for the place table.
 */
#ifndef RG_ROUTER_PLACEMENT_H
#define RG_ROUTER_PLACEMENT_H

#include <stdint.h>

struct place_table;

/* What this node has to do now (heritage_load), which the place table shows later. */
struct placement_load {
    uint32_t sessions, calls, capacity;
};

/* Returns the slot of the node that shall make a session instead of this one: the less loaded of
 * two that `random` draws. FLEET_NO_NODE: this node makes it. It does so unless it is full, or has
 * 1.25 times the mean load of the nodes that are up, and 16 sessions more than the mean. */
uint32_t placement_choose(const struct place_table *t, const struct placement_load *own,
                          uint64_t random);

#endif
