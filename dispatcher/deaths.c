/* Finds deaths of processes that aborted calls of an attempt, by the times on the board. A gateway
 * that continues after an upgrade has not died. In a fleet a session may be another node's, whose
 * processes are not on the board. If the session's place has got a new owner, its epoch is not the
 * epoch at the claim. After a restart the epoch at the claim is unknown; then its time is
 * compared, because a new epoch is at least the store's clock. */
#include "common/fleet/place_table.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "dispatcher/desk.h"

static bool has_died(const struct board *b, unsigned slot, uint64_t since_ms)
{
    return atomic_load(&b->slots[slot].died_ms) > since_ms;
}

/* Reports whether the session is of this node. */
static bool is_here(const struct desk *d, uint32_t index)
{
    return !d->copy || place_table_own_epoch(d->heritage->fleet, index) != 0;
}

/* Returns the epoch of the place; 0: unknown. */
static uint64_t find_epoch(const struct desk *d, uint32_t index)
{
    struct fleet_place place;

    return d->copy && place_table_find(d->heritage->fleet, index, &place) ? place.epoch : 0;
}

uint64_t desk_find_move(const struct desk *d, const struct attempt *a)
{
    uint32_t index;
    uint64_t epoch =
        d->copy && ids_parse(str_cstr(a->session), &index) == 0 ? find_epoch(d, index) : 0;
    bool known = epoch > 0 && a->claim_epoch > 0;

    return (known ? epoch != a->claim_epoch : epoch > a->claimed_at_ms) ? epoch : 0;
}

void desk_note_epoch(const struct desk *d, struct attempt *a)
{
    uint32_t index;

    if (d->copy && ids_parse(str_cstr(a->session), &index) == 0)
        a->claim_epoch = find_epoch(d, index);
}

const char *desk_find_death(const struct desk *d, const struct attempt *a)
{
    const struct board *b = d->heritage->board;
    uint64_t since_ms = a->claimed_at_ms;
    uint32_t index = 0;
    bool has_index = ids_parse(str_cstr(a->session), &index) == 0;
    int place = has_index ? board_resolve(b, index) : -1;
    /* used unless the place was adopted */
    int own = has_index ? board_place(b, index) : -1;

    if (desk_find_move(d, a) > 0)
        return "the session's node was lost or started again during the attempt";
    if (has_index && !is_here(d, index))
        return NULL;
    if (atomic_load(&b->started_ms) > since_ms)
        return "the gateway was started again during the attempt";
    if ((place >= 0 && has_died(b, BOARD_WORKER0 + (unsigned)place, since_ms)) ||
        (own >= 0 && has_died(b, BOARD_WORKER0 + (unsigned)own, since_ms)))
        return "the session's worker died during the attempt";
    for (unsigned i = 0; i < BOARD_ROUTERS_MAX; i++)
        if (has_died(b, BOARD_ROUTER0 + i, since_ms))
            return "a router died during the attempt";
    return NULL;
}
