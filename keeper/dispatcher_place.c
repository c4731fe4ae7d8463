/*
 * The place of the fleet's dispatcher, which is of no node's block. Each node with --dispatcher on
 * may claim it.
 *
 *   first    after a wait in which the entry stays missing, because a new store looks like one that
 *            was emptied: then the owner, which has the groups, brings the entry back. The wait is
 *            short for the node that had the groups last, and for a new fleet's only node. If the
 *            last one does not come, ids of groups that nobody knows are reported as lost
 *   again    by a node that had it in a time that the store has forgotten
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

/* True if this node is new, and so is the fleet: it has no other node, and no place of one. */
static bool is_alone(const struct fleet_keeper *k)
{
    struct map_slot *slot;

    if (!k->founded)
        return false;
    for (size_t at = 0; (slot = map_next(&k->view.nodes, &at));)
        if (strcmp(((const struct seen_node *)slot->value)->name, k->name) != 0)
            return false;
    for (size_t at = 0; (slot = map_next(&k->view.places, &at));)
        if (strcmp(((const struct seen_place *)slot->value)->owner, k->name) != 0)
            return false;
    return true;
}

/* True if another node had the place after this one, which has seen that. */
static bool is_lost(const struct fleet_keeper *k)
{
    const struct seen_place *gone = fleet_view_gone(&k->view, FLEET_DISPATCHER);

    return place_table_had(k->table, FLEET_DISPATCHER) &&
           !(gone && gone->base <= ownership_read_base(k, FLEET_DISPATCHER));
}

/* Returns how many leases the entry must be missing before this node makes it. A living owner needs
 * less than one, one that starts has the groups, and one that was seen may come back. */
static uint64_t count_leases(const struct fleet_keeper *k)
{
    enum { LEASES_SHORT = 1, LEASES = 3, LEASES_SEEN = 6 };

    if (is_lost(k))
        return LEASES_SEEN;
    return ownership_has_folder(k, FLEET_DISPATCHER) || is_alone(k) ? LEASES_SHORT : LEASES;
}

/* Makes the first entry. Returns when it may be made; 0: now, or not. */
static uint64_t claim_first(struct fleet_keeper *k, uint64_t now_ms)
{
    uint64_t since_ms = MAX_OF(k->view.unbroken_ms, k->desk_missed_ms);
    uint64_t due_ms = since_ms + count_leases(k) * k->lease_ms;

    if (k->view.unbroken_ms == 0)
        return 0;
    if (is_lost(k) && now_ms >= since_ms + 2 * k->lease_ms) {
        k->unserved++;
        complain(k, "the store has lost its entry, and no node has brought it back", now_ms);
    }
    if (now_ms < due_ms)
        return due_ms;
    if (is_lost(k))
        log_error(NULL, "the groups of the dispatcher's last node are lost, as the store's are");
    ownership_claim_first(k, FLEET_DISPATCHER, is_lost(k));
    return 0;
}

/* Returns why this node may not claim the place, or NULL. */
static const char *find_obstacle(const struct fleet_keeper *k, const struct seen_place *p,
                                 bool is_ours)
{
    bool has_folder = ownership_has_folder(k, FLEET_DISPATCHER);

    if (ownership_is_avoided(k, FLEET_DISPATCHER))
        return "its process died again and again at this node";
    if (p->version > k->entry.newest_record)
        return "its records have a newer version";
    if (!is_ours && !p->whole)
        return "its owner has records that the store lacks";
    if (!is_ours && has_folder)
        return "its old folder is in this node's --state-dir";
    if (is_ours && !p->whole && !has_folder)
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

    if (ownership_is_forgotten(k, p)) {
        ownership_claim_first(k, FLEET_DISPATCHER, false);
        return 0;
    }
    if (!is_ours && (lost_ms == 0 || lost_ms > p->seen_ms))
        return fleet_view_silent_ms(&k->view, p, k->lease_ms);
    k->unserved++;
    if (obstacle)
        complain(k, obstacle, now_ms);
    else if (!is_ours && now_ms < lost_ms + wait_ms)
        return lost_ms + wait_ms;
    else if (!ownership_continue(k, p))
        ownership_claim_seen(k, p);
    return 0;
}

uint64_t dispatcher_place_claim(struct fleet_keeper *k)
{
    const struct seen_place *p = fleet_view_place(&k->view, FLEET_DISPATCHER);
    uint64_t now_ms = clock_boot_ms();

    if (p)
        k->desk_missed_ms = 0;
    else if (k->desk_missed_ms == 0)
        k->desk_missed_ms = now_ms;
    if (!k->h->config->dispatcher || ownership_is_leaving(k) ||
        atomic_load(&k->h->board->draining) || place_table_own_epoch(k->table, FLEET_DISPATCHER) ||
        ownership_is_claimed(k, FLEET_DISPATCHER))
        return 0;
    return p ? claim_known(k, p, now_ms) : claim_first(k, now_ms);
}
