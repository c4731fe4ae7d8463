/* The owner of a place (owner.h). */
#include "router/owner.h"

#include "common/base/clock.h"
#include "common/fleet/place_table.h"

static bool has_places(const struct place_table *t, uint32_t block)
{
    struct fleet_place place;

    for (uint32_t i = 0; i < FLEET_BLOCK_SIZE; i++) {
        if (place_table_find(t, block * FLEET_BLOCK_SIZE + i, &place))
            return true;
    }
    return false;
}

/* Whether a place that the table lacks may have sessions: the store had it and has lost it, or all
 * places of a node's block, or the table may lack entries. */
static bool may_exist(const struct place_table *t, uint32_t index)
{
    struct fleet_node node;

    if (place_table_self(t) == FLEET_NO_NODE || !place_table_is_complete(t, clock_boot_ms()))
        return true;
    if (place_table_had(t, index) || place_table_own_epoch(t, index) != 0)
        return true;
    if (place_table_is_vacant(t, index) || has_places(t, index / FLEET_BLOCK_SIZE))
        return false;
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (place_table_node(t, slot, &node) && node.block == index / FLEET_BLOCK_SIZE)
            return true;
    }
    return false;
}

struct owner owner_find(const struct place_table *t, uint32_t index)
{
    struct owner found = {.kind = OWNER_NONE};
    struct fleet_place place;
    struct fleet_node node;

    if (!place_table_find(t, index, &place)) {
        found.kind = index == FLEET_DISPATCHER || may_exist(t, index) ? OWNER_NONE : OWNER_UNKNOWN;
        return found;
    }
    found.epoch = place.epoch;
    if (place.node != FLEET_NO_NODE && place.node == place_table_self(t))
        found.kind = OWNER_SELF;
    else if (place_table_node(t, place.node, &node) && node.state != FLEET_LOST) {
        found.kind = OWNER_OTHER;
        found.node = place.node;
    }
    return found;
}
