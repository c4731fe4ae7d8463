/* Metrics of the keeper: nodes, and the places that this node owns. */
#include "common/base/log.h"
#include "common/fleet/redis_info.h"
#include "common/fleet/redis_store.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "keeper/keeper_state.h"

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

const char *keeper_check_store(struct fleet_keeper *k, const struct store_answer *a)
{
    bool refused = a->verdict != STORE_DONE;

    if (refused && !k->info_refused)
        log_warn(NULL,
                 "the store does not allow INFO: its settings are not checked, and records that a "
                 "failover loses together with their node are not noticed",
                 LOG_T("reason", a->why));
    k->info_refused = refused;
    return refused ? NULL : redis_info_fault(a->n_texts > 0 ? a->texts[0] : STR(""));
}

/* A replica that was promoted may have other settings than the server that was checked. */
static void on_store_info(void *ctx, const struct store_answer *a)
{
    struct fleet_keeper *k = ctx;
    const char *fault;

    if (k->ending || a->verdict == STORE_LOST)
        return; /* renewals report it */
    if (a->n_texts > 0)
        metrics_set(k->h->page, METRIC_fleet_store_bytes,
                    redis_info_number(a->texts[0], "used_memory_dataset"));
    fault = keeper_check_store(k, a);
    if (fault && fault != k->store_fault)
        log_error(NULL, "the store may lose records", LOG_T("reason", fault));
    k->store_fault = fault;
}

void keeper_measure_store(struct fleet_keeper *k)
{
    redis_store_info(k->store, (struct store_call){on_store_info, k});
}
