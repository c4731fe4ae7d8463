/* Placement of new sessions by load (placement.h). */
#include "router/placement.h"

#include "common/fleet/place_table.h"
#include "common/proc/heritage.h"

enum { MORE_SESSIONS = 16 };

struct candidates {
    double loads[2]; /* loads of the two nodes that were drawn */
    uint32_t slots[2];
    unsigned n;            /* number of the other nodes that are up */
    double load, sessions; /* sums over these nodes */
};

/* Returns the load as a fraction of the capacity. heritage_load.load is too coarse: a large node
 * makes many sessions before it changes. */
static double load_of(uint32_t sessions, uint32_t calls, uint32_t capacity)
{
    return capacity > 0 ? ((double)sessions + (double)HERITAGE_CALL_WEIGHT * calls) / capacity
                        : UINT32_MAX;
}

/* Draws two of the nodes that are up: the k-th of them replaces a drawn one with probability 1/k.
 */
static void read_nodes(const struct place_table *t, uint64_t random, struct candidates *ret)
{
    struct fleet_node node;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        double load;

        if (!place_table_node(t, slot, &node) || node.state != FLEET_UP || node.is_self ||
            node.capacity == 0)
            continue;
        load = load_of(node.sessions, node.calls, node.capacity);
        ret->n++;
        ret->load += load;
        ret->sessions += node.sessions;
        for (unsigned i = 0; i < 2; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            if ((random >> 33) % ret->n != 0)
                continue;
            ret->slots[i] = slot;
            ret->loads[i] = load;
        }
    }
}

uint32_t placement_choose(const struct place_table *t, const struct heritage_load *own,
                          uint64_t random)
{
    double load = load_of(own->sessions, own->calls, own->capacity), nodes;
    bool is_full = own->sessions >= own->capacity;
    struct candidates c = {0};
    unsigned less;

    read_nodes(t, random, &c);
    nodes = c.n + 1;
    if (c.n == 0 ||
        (!is_full && (load * nodes <= 1.25 * (c.load + load) ||
                      own->sessions * nodes < c.sessions + own->sessions + MORE_SESSIONS * nodes)))
        return FLEET_NO_NODE;
    less = c.loads[1] < c.loads[0];
    return c.loads[less] < 1 && c.loads[less] < load ? c.slots[less] : FLEET_NO_NODE;
}
