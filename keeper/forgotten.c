/*
 * Places of other nodes that an emptied store has forgotten (keeper_state.h). A living owner brings
 * its places back within half a lease. Those that are missing then have a lost owner: each node
 * that has seen them restores them under its name. The owner, or a node with a newer claim, gets
 * them when it comes. A place that had been released, and that no node had claimed, has no records
 * anywhere: it is released again, marked. If the place was made anew meanwhile, by a node without
 * its sessions, the entry is marked, so that ids which nobody knows are reported as lost. So is the
 * dispatcher's place, which waits for no lost owner.
 *
 * Claims that a failover has lost are told to the store by all nodes that have seen them.
 */
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "keeper/keeper_state.h"

struct restored_place {
    struct fleet_keeper *k;
    uint32_t index;
    uint64_t told;
};

/* No node had the place when the store lost its records. */
static void release_lost(struct fleet_keeper *k, uint32_t index, uint64_t epoch)
{
    log_error(NULL, "the store has forgotten a place that no node had, its sessions are lost",
              place_table_log("index", index));
    ownership_release(k, index, epoch);
}

static void on_restored(void *ctx, const struct store_answer *a)
{
    struct restored_place *r = ctx;
    struct fleet_keeper *k = r->k;

    if (!k->ending) {
        keeper_check_answer(k, a);
        ownership_end_call(k, r->index);
        if (a->verdict == STORE_DONE && a->owner.len == 0)
            release_lost(k, r->index, a->epoch);
        else if (a->verdict == STORE_DONE)
            log_warn(NULL, "the store has forgotten a place of a lost node, which it waits for now",
                     place_table_log("index", r->index), LOG_S("node", a->owner));
        if (a->verdict != STORE_LOST)
            k->listed_ms = 0; /* its entry has changed */
    }
    free(r);
}

/* --- claims that the store has lost --- */

static void on_reported(void *ctx, const struct store_answer *a)
{
    struct restored_place *r = ctx;
    struct seen_place *p = r->k->ending ? NULL : fleet_view_place(&r->k->view, r->index);

    if (!r->k->ending) {
        keeper_check_answer(r->k, a);
        ownership_end_call(r->k, r->index);
    }
    if (p && a->verdict == STORE_ALIVE)
        p->told = r->told;
    free(r);
}

/* A failover may lose a claim and what was recorded under it. If its owner is lost, too, whichever
 * node takes the place marks its sessions: it may not have seen that claim. */
static void report_lost_claims(struct fleet_keeper *k)
{
    struct map_slot *slot;

    for (size_t at = 0; k->view.unbroken_ms > 0 && (slot = map_next(&k->view.places, &at));) {
        const struct seen_place *p = slot->value;
        const struct store_claim claim = {.place = p->index,
                                          .me = str_cstr(p->owner),
                                          .seen = p->newest,
                                          .reads = UINT32_MAX,
                                          .restores = true};
        struct restored_place *r;

        if (p->newest <= p->epoch || p->told == p->newest || p->vacant ||
            place_table_own_epoch(k->table, p->index) != 0 || ownership_is_claimed(k, p->index))
            continue;
        r = mem_zalloc(sizeof(*r));
        *r = (struct restored_place){k, p->index, p->newest};
        *vec_push(&k->claims) = p->index;
        store_claim(k->store, &claim, (struct store_call){on_reported, r});
    }
}

/* --- places --- */

static void restore_entry(struct fleet_keeper *k, const struct seen_place *gone)
{
    struct restored_place *r = mem_zalloc(sizeof(*r));
    const struct store_claim claim = {.place = gone->index,
                                      .block = gone->index / FLEET_BLOCK_SIZE,
                                      .me = str_cstr(gone->owner),
                                      .known = gone->base,
                                      .reads = UINT32_MAX,
                                      .incomplete = !gone->owner[0] ||
                                                    place_table_is_taken(k->table, gone->index),
                                      .restores = true};

    *r = (struct restored_place){.k = k, .index = gone->index};
    *vec_push(&k->claims) = gone->index;
    store_claim(k->store, &claim, (struct store_call){on_restored, r});
}

/* True if there is nothing to restore: the store was not emptied, or knows of the place's last
 * claim or that sessions of it are lost. */
static bool is_settled(const struct fleet_keeper *k, struct seen_place *gone)
{
    const struct seen_place *p = fleet_view_place(&k->view, gone->index);

    if (!fleet_view_has_lost(&k->view, gone))
        return k->view.round > gone->gone_round + 2;
    if (gone->index != FLEET_DISPATCHER && place_table_own_epoch(k->table, gone->index) != 0)
        return true;
    return p && (p->taken || !fleet_view_lacks_claim(p, gone->base));
}

/* The dispatcher's place waits for no lost owner: its next one makes the entry
 * (dispatcher_place.c), which is only marked if that node did not know of the last owner. */
static bool is_restorable(const struct fleet_keeper *k, struct seen_place *gone)
{
    return fleet_view_has_lost(&k->view, gone) && !ownership_is_claimed(k, gone->index) &&
           (gone->index != FLEET_DISPATCHER || fleet_view_place(&k->view, gone->index));
}

void forgotten_restore(struct fleet_keeper *k)
{
    uint64_t now_ms = clock_boot_ms();
    VEC(struct seen_place *) settled = {0};
    struct map_slot *slot;

    report_lost_claims(k);
    for (size_t at = 0; (slot = map_next(&k->view.gone, &at));) {
        struct seen_place *gone = slot->value;
        uint64_t since_ms = MAX_OF(gone->gone_ms, k->view.unbroken_ms);

        if (is_settled(k, gone))
            *vec_push(&settled) = gone;
        else if (k->view.unbroken_ms > 0 && now_ms >= since_ms + k->lease_ms / 2 &&
                 is_restorable(k, gone))
            restore_entry(k, gone);
    }
    for (size_t i = 0; i < settled.n; i++)
        fleet_view_drop_gone(&k->view, settled.at[i]);
    if (settled.n > 0)
        k->written_changes = 0; /* the file still has them */
    vec_done(&settled);
}
