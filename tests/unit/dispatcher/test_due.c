/* Leases while the store of a fleet is away. */
#include "book_kit.h"
#include "common/base/clock.h"
#include "common/fleet/place_table.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/desk.h"
#include "testing.h"

static void on_read(struct desk *d)
{
    (void)d;
}

TEST(due, no_lease_runs_while_requests_are_refused)
{
    char url[] = "redis://127.0.0.1:1/0?name=x";
    struct config config = {
        .fleet = url, .fleet_lease_ms = 60000, .fleet_outage_ms = 1000, .attempt_lease_ms = 30000};
    struct heritage h = {.config = &config, .fleet = place_table_new()};
    struct err e = {0};
    struct desk d = {.heritage = &h, .loop = loop_new(&e), .leases_ms = 1000};
    struct attempt *a;
    struct group *g;

    book_init(&d.book);
    submit(&d.book, "g", "");
    g = book_group(&d.book, STR("g"));
    a = claim(&d.book, "x", 2000);
    cr_assert(g && a);
    a->lease_due_ms = g->taken_until_ms = 1100;
    cr_assert_eq(desk_copy_open(&d, &e), 0, "%s", e.text);
    desk_copy_start(&d, on_read);
    cr_assert_eq(desk_copy_check_read(&d, &e), -1);
    desk_check_leases(&d, 1250);
    desk_check_leases(&d, 36000);
    cr_assert_eq(a->lease_due_ms, 36100);
    cr_assert_eq(g->taken_until_ms, 36100);
    cr_assert(place_table_set_own(h.fleet, FLEET_DISPATCHER, 5, 0));
    place_table_set_renewed(h.fleet, FLEET_DISPATCHER, clock_boot_ms());
    cr_assert_eq(desk_copy_check_read(&d, &e), 0, "%s", e.text);
    desk_check_leases(&d, 36050);
    cr_assert_eq(a->lease_due_ms, 36100, "it runs again");
    cr_assert_not(a->ended);
    desk_copy_close(&d);
    book_done(&d.book);
    loop_free(d.loop);
    place_table_free(h.fleet);
}
