/* Metrics of the keeper: nodes, and the places that this node owns. */
#include "common/base/attrs.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "keeper/keeper_state.h"

/* A running call counts as four sessions. */
uint32_t keeper_measure_load(const struct fleet_keeper *k)
{
    enum { CALL_WEIGHT = 4, LOAD_MAX = 100000 };

    const struct config *c = k->h->config;
    uint64_t used = metrics_read(k->h->metrics, METRIC_sessions, METRIC_PHASE_OPEN, 0);

    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++)
        used += (uint64_t)CALL_WEIGHT *
                atomic_load_explicit(&k->h->board->slots[BOARD_WORKER0 + i].waiting,
                                     memory_order_relaxed);
    used = used * 1000 / ((uint64_t)c->max_sessions * (uint64_t)MAX_OF(c->workers, 1));
    return (uint32_t)MIN_OF(used, (uint64_t)LOAD_MAX);
}

void keeper_publish_figures(struct fleet_keeper *k)
{
    struct metrics_page *page = k->h->page;
    uint64_t states[] = {0, 0, 0}, own = 0, whole = 0, behind = 0;
    struct fleet_own_place o;
    struct fleet_place place;
    struct fleet_node node;

    for (uint32_t i = 0; i < FLEET_NODES_MAX; i++)
        if (place_table_node(k->table, i, &node))
            states[node.state]++;
    for (size_t at = 0; place_table_next_own(k->table, &at, &o);) {
        own += o.epoch > 0;
        behind += o.epoch > 0 ? o.behind : 0;
        whole += o.epoch > 0 && place_table_find(k->table, o.index, &place) && place.whole;
    }
    metrics_set_at(page, METRIC_fleet_nodes, METRIC_FLEET_NODE_UP, states[FLEET_UP]);
    metrics_set_at(page, METRIC_fleet_nodes, METRIC_FLEET_NODE_DRAINING, states[FLEET_DRAINING]);
    metrics_set_at(page, METRIC_fleet_nodes, METRIC_FLEET_NODE_LOST, states[FLEET_LOST]);
    metrics_set(page, METRIC_fleet_places, own);
    metrics_set(page, METRIC_fleet_whole, whole);
    metrics_set(page, METRIC_fleet_behind, behind);
    metrics_set(page, METRIC_fleet_unowned, k->unserved);
}
