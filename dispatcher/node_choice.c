/* Placement of attempts by load (node_choice.h). A load is sessions and weighted calls over the
 * capacity, as for sessions that clients make (router/placement.h). */
#include "dispatcher/node_choice.h"

#include "common/proc/board.h"
#include "common/proc/heritage.h"

enum { AVOID_MS = 1000 };

/* Returns the sessions that were placed and are not published yet. */
static uint32_t count_placed(const struct node_choice *c, uint32_t slot,
                             const struct fleet_node *node)
{
    bool same = c->nodes[slot].sessions == node->sessions && c->nodes[slot].calls == node->calls;

    return same ? c->nodes[slot].placed : 0;
}

/* Returns the load with one session more; 0: the node makes no session now. */
static double measure_load(const struct node_choice *c, const struct heritage *h, uint32_t slot,
                           uint64_t now_ms)
{
    struct fleet_node node;
    double sessions;

    if (!place_table_node(h->fleet, slot, &node) || node.state != FLEET_UP ||
        now_ms < c->nodes[slot].avoided_until_ms ||
        (node.is_self && board_workers_ready(h->board) == 0))
        return 0;
    sessions = (double)node.sessions + count_placed(c, slot, &node) + 1;
    return sessions > node.capacity
               ? 0
               : (sessions + (double)HERITAGE_CALL_WEIGHT * node.calls) / node.capacity;
}

uint32_t node_choice_find(const struct node_choice *c, const struct heritage *h, uint64_t now_ms)
{
    uint32_t best = FLEET_NO_NODE;
    double least = 0;

    for (uint32_t i = 0; i < FLEET_NODES_MAX; i++) {
        uint32_t slot = (c->turn + i) % FLEET_NODES_MAX;
        double load = measure_load(c, h, slot, now_ms);

        if (load > 0 && (best == FLEET_NO_NODE || load < least)) {
            best = slot;
            least = load;
        }
    }
    return best;
}

void node_choice_count(struct node_choice *c, const struct heritage *h, uint32_t slot)
{
    struct fleet_node node;

    if (!place_table_node(h->fleet, slot, &node))
        return;
    c->nodes[slot].placed = count_placed(c, slot, &node) + 1;
    c->nodes[slot].sessions = node.sessions;
    c->nodes[slot].calls = node.calls;
    c->turn = slot + 1;
}

void node_choice_avoid(struct node_choice *c, uint32_t slot, uint64_t now_ms)
{
    if (slot < FLEET_NODES_MAX)
        c->nodes[slot].avoided_until_ms = now_ms + AVOID_MS;
}
