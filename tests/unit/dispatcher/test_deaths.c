/* Moves of a session's place during an attempt. */
#include "common/fleet/place_table.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/desk.h"
#include "testing.h"

enum { CLAIMED_MS = 1000000 };

static void set_place(struct place_table *t, uint64_t epoch)
{
    cr_assert(place_table_set(t, &(struct fleet_place){.index = 5, .node = 1, .epoch = epoch}));
}

TEST(deaths, a_place_has_moved_when_its_epoch_is_another)
{
    char url[] = "redis://127.0.0.1:1/0?name=x";
    struct config config = {.fleet = url, .fleet_lease_ms = 60000, .fleet_outage_ms = 1000};
    struct heritage h = {.config = &config, .fleet = place_table_new(), .board = board_new()};
    struct attempt a = {.session = "w5-0123456789abcdef0123456789abcdef",
                        .claimed_at_ms = CLAIMED_MS};
    struct err e = {0};
    struct desk d = {.heritage = &h, .loop = loop_new(&e)};

    cr_assert_eq(desk_copy_open(&d, &e), 0, "%s", e.text);
    set_place(h.fleet, CLAIMED_MS + 9); /* the store's clock is ahead */
    desk_note_epoch(&d, &a);
    cr_assert_null(desk_find_death(&d, &a));
    set_place(h.fleet, CLAIMED_MS + 10);
    cr_assert_not_null(desk_find_death(&d, &a));
    desk_note_epoch(&d, &a);
    cr_assert_null(desk_find_death(&d, &a));
    a.claim_epoch = 0; /* after a restart */
    cr_assert_not_null(desk_find_death(&d, &a));
    set_place(h.fleet, CLAIMED_MS);
    cr_assert_null(desk_find_death(&d, &a));
    desk_copy_close(&d);
    loop_free(d.loop);
    place_table_free(h.fleet);
    board_free(h.board);
}
