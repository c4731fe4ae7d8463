/* Places that this node gives up, after their workers have ended (keeper_state.h). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "keeper/keeper_state.h"

enum { AVOID_LEASES = 12 };

bool ownership_is_avoided(const struct fleet_keeper *k, uint32_t index)
{
    for (size_t i = 0; i < k->avoided.n; i++)
        if (k->avoided.at[i].index == index && clock_boot_ms() < k->avoided.at[i].until_ms)
            return true;
    return false;
}

struct place_release {
    struct fleet_keeper *k;
    uint32_t index;
    uint64_t epoch;
};

/* Remembers that the place's worker died again and again here. */
static void avoid_place(struct fleet_keeper *k, uint32_t index)
{
    uint64_t now_ms = clock_boot_ms();
    size_t kept = 0;

    for (size_t i = 0; i < k->avoided.n; i++)
        if (k->avoided.at[i].until_ms > now_ms)
            k->avoided.at[kept++] = k->avoided.at[i];
    k->avoided.n = kept;
    *vec_push(&k->avoided) = (struct avoided_place){index, now_ms + AVOID_LEASES * k->lease_ms};
}

static void on_released(void *ctx, const struct store_answer *a)
{
    struct place_release *r = ctx;
    struct fleet_keeper *k = r->k;
    struct seen_place *seen = fleet_view_place(&k->view, r->index);
    struct fleet_own_place own;

    if (!k->ending) {
        keeper_check_answer(k, a);
        ownership_end_call(k, r->index);
        if (a->verdict == STORE_DONE || a->verdict == STORE_FENCED) {
            if (place_table_find_own(k->table, r->index, &own) && own.failed_epoch == r->epoch)
                avoid_place(k, r->index);
            (void)place_table_set_own(k->table, r->index, 0, 0);
            if (seen)
                seen->stale = true;
            log_info(NULL, "place released", place_table_log("index", r->index),
                     LOG_T("result", store_verdict_name(a->verdict)));
        }
    }
    free(r);
}

void ownership_release(struct fleet_keeper *k, uint32_t index, uint64_t epoch)
{
    struct place_release *r = mem_zalloc(sizeof(*r));
    struct fleet_own_place own = {0};
    bool whole = place_table_find_own(k->table, index, &own) && own.whole_epoch == epoch;

    *r = (struct place_release){k, index, epoch};
    *vec_push(&k->claims) = index; /* no renewal meanwhile */
    store_release(k->store, index, epoch, whole ? own.server : 0,
                  (struct store_call){on_released, r});
}

/* True if a process of this node serves the place. */
static bool has_process(const struct fleet_keeper *k, uint32_t index)
{
    const struct board *b = k->h->board;

    return index == FLEET_DISPATCHER ? atomic_load(&b->slots[BOARD_DISPATCHER].state) != BOARD_EMPTY
                                     : board_resolve(b, index) >= 0;
}

void ownership_release_idle(struct fleet_keeper *k)
{
    struct fleet_own_place own;

    for (size_t at = 0; place_table_next_own(k->table, &at, &own);) {
        if (own.epoch == 0 || own.left_epoch != own.epoch ||
            (own.abandoned_epoch != own.epoch && !ownership_is_leaving(k)) ||
            has_process(k, own.index) || ownership_is_claimed(k, own.index))
            continue;
        ownership_release(k, own.index, own.epoch);
    }
}
