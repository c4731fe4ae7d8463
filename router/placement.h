/*
 * Placement of new sessions: on the node that gets the request, unless it is full or has a much
 * higher load than the fleet. Pure, except that it reads the place table.
 */
#ifndef RG_ROUTER_PLACEMENT_H
#define RG_ROUTER_PLACEMENT_H

#include <stdint.h>

struct heritage_load;
struct place_table;

/* Returns the slot of the node that makes a session instead of this one: the less loaded of two
 * that `random` draws. FLEET_NO_NODE: this node makes it. It does so unless it is full, or has 1.25
 * times the mean load of the nodes that are up, and 16 sessions more than the mean. `own` is the
 * load now, which the place table shows later. */
uint32_t placement_choose(const struct place_table *t, const struct heritage_load *own,
                          uint64_t random);

#endif
