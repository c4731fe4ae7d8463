/*
 * The place of the fleet's dispatcher, which is of no node's block. Each node with --dispatcher on
 * may claim it.
 *
 *   first    by the node that founded the fleet; by others if no node has claimed it for a lease. A
 *            node that has seen the entry before makes none: the store has lost it, and the owner,
 *            which has the groups, brings it back
 *   later    by its owner after a restart, or by another node when the owner is lost, if the store
 *            has all records that were answered
 */
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"

enum { COMPLAIN_MS = 60000 };

/* Logs once a minute why the place stays without a living owner. */
static void complain(struct fleet_keeper *k, const char *why, uint64_t now_ms)
{
    if (k->desk_complained_ms && now_ms - k->desk_complained_ms < COMPLAIN_MS)
        return;
    k->desk_complained_ms = now_ms;
    log_error(NULL, "the dispatcher's place cannot be claimed, requests of groups wait",
              LOG_T("reason", why));
}

/* Makes the first entry. Returns when it may be made; 0: now, or never. */
static uint64_t claim_first(struct fleet_keeper *k, uint64_t now_ms)
{
    uint64_t due_ms = k->view.unbroken_ms + k->lease_ms;

    if (k->view.unbroken_ms == 0 || place_table_had(k->table, FLEET_DISPATCHER))
        return 0;
    if (!k->founded && now_ms < due_ms)
        return due_ms;
    ownership_claim_first(k, FLEET_DISPATCHER);
    return 0;
}

/* Returns why this node may not claim the place, or NULL. */
static const char *find_obstacle(const struct fleet_keeper *k, const struct seen_place *p,
                                 bool is_ours)
{
    bool has_folder = ownership_has_folder(k, FLEET_DISPATCHER);
    bool has_all = p->whole || p->base == p->epoch; /* of what was answered */

    if (p->version > k->entry.newest_record)
        return "its records have a newer version";
    if (!is_ours && !has_all)
        return "its owner has records that the store lacks";
    if (!is_ours && has_folder)
        return "its old folder is in this node's --state-dir";
    if (is_ours && !has_all && !has_folder)
        return "its groups are not in this node's --state-dir, and the store lacks some";
    return NULL;
}

/* Claims the place that the store has. Returns when it may be claimed; 0: now, or not. */
static uint64_t claim_known(struct fleet_keeper *k, const struct seen_place *p, uint64_t now_ms)
{
    enum { LOAD_FULL = 1000, WAITS_PER_LEASE = 4 };

    bool is_ours = strcmp(p->owner, k->name) == 0;
    uint64_t lost_ms = fleet_view_lost_ms(&k->view, p, k->lease_ms);
    uint64_t wait_ms =
        k->lease_ms * MIN_OF(k->entry.load, (uint32_t)LOAD_FULL) / LOAD_FULL / WAITS_PER_LEASE;
    const char *obstacle = find_obstacle(k, p, is_ours);

    if (!is_ours && (lost_ms == 0 || lost_ms > p->seen_ms))
        return fleet_view_silent_ms(&k->view, p, k->lease_ms);
    k->unserved++;
    if (obstacle)
        complain(k, obstacle, now_ms);
    else if (!is_ours && now_ms < lost_ms + wait_ms)
        return lost_ms + wait_ms;
    else if (!ownership_continue(k, p))
        ownership_claim_dispatcher(k, p);
    return 0;
}

uint64_t dispatcher_place_claim(struct fleet_keeper *k)
{
    const struct seen_place *p = fleet_view_place(&k->view, FLEET_DISPATCHER);
    uint64_t now_ms = clock_boot_ms();

    if (!k->h->config->dispatcher || ownership_is_leaving(k) ||
        atomic_load(&k->h->board->draining) || place_table_own_epoch(k->table, FLEET_DISPATCHER) ||
        ownership_is_claimed(k, FLEET_DISPATCHER))
        return 0;
    return p ? claim_known(k, p, now_ms) : claim_first(k, now_ms);
}
