/*
 * Claims this node's share of lost places (lost_places.h). If the state folder has sessions of a
 * place, which another node may have continued, the supervisor puts them aside first.
 */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"
#include "keeper/lost_places.h"

enum { COMPLAIN_MS = 60000 };

/* Places that this node can yet serve. */
static size_t count_free(const struct fleet_keeper *k)
{
    struct fleet_own_place own;
    size_t used = k->claims.n, taken = 0;

    for (size_t at = 0; place_table_next_own(k->table, &at, &own);)
        used += own.epoch > 0 && own.index != FLEET_DISPATCHER;
    for (uint32_t i = 0; i < BOARD_WORKERS_MAX; i++)
        taken += atomic_load(&k->h->board->slots[BOARD_WORKER0 + i].state) != BOARD_EMPTY;
    used = MAX_OF(used, taken);
    return used < FLEET_OWN_MAX ? FLEET_OWN_MAX - used : 0;
}

/* Logs once a minute that places stay without an owner, and why. */
static void complain(struct fleet_keeper *k, const struct lost_choice *choice, uint64_t now_ms)
{
    if (!choice->why || (k->complained_ms && now_ms - k->complained_ms < COMPLAIN_MS))
        return;
    k->complained_ms = now_ms;
    log_error(NULL, "a place without an owner cannot be claimed, its requests wait",
              LOG_U("index", choice->refused), LOG_T("reason", choice->why),
              LOG_U("places", choice->unserved));
}

static void claim_unheard(struct fleet_keeper *k)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&k->view.places, &at));)
        if (ownership_is_unheard(k, slot->value) && count_free(k) > 0)
            ownership_claim_seen(k, slot->value);
}

/* Adds the places of this node whose sessions it has lost. */
static void add_incomplete(const struct fleet_keeper *k, struct lost_choice *choice)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&k->view.places, &at));) {
        const struct seen_place *p = slot->value;

        if (!ownership_is_incomplete(k, p) || ownership_is_claimed(k, p->index))
            continue;
        choice->unserved++;
        choice->refused = p->index;
        choice->why = "its sessions are not in this node's --state-dir, and the store lacks some";
    }
}

uint64_t adopting_claim_lost(struct fleet_keeper *k)
{
    bool claims = !ownership_is_leaving(k) && !atomic_load(&k->h->board->draining);
    struct lost_query q = {.self = &k->entry, .lease_ms = k->lease_ms, .now_ms = clock_boot_ms()};
    struct lost_choice choice;

    if (claims)
        claim_unheard(k);
    q.free = count_free(k);
    lost_places_choose(&k->view, &q, &choice);
    add_incomplete(k, &choice);
    k->unserved = choice.unserved;
    if (!claims)
        return 0;
    for (size_t i = 0; i < choice.n; i++) {
        const struct seen_place *p = fleet_view_place(&k->view, choice.claims[i]);

        if (ownership_is_claimed(k, p->index))
            continue;
        if (!ownership_has_folder(k, p->index) && !ownership_is_avoided(k, p->index)) {
            ownership_adopt(k, p);
            continue;
        }
        choice.refused = p->index;
        choice.why = ownership_is_avoided(k, p->index)
                         ? "its worker died again and again at this node"
                         : "its old folder is in this node's --state-dir";
    }
    complain(k, &choice, q.now_ms);
    return choice.due_ms;
}
