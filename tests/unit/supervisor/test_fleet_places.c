/* Folders of places that other nodes have. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "supervisor/supervisor.h"
#include "supervisor/supervisor_internal.h"
#include "testing.h"

enum { MANY = 1001 };

/* "worker-7", then names of folders that were put aside. */
static const char *path_of(const char *folder, unsigned n)
{
    static char path[128];
    char end[32] = "";

    if (n == 1)
        (void)snprintf(end, sizeof(end), ".lost");
    else if (n > 1)
        (void)snprintf(end, sizeof(end), ".lost-%u", n);
    (void)snprintf(path, sizeof(path), "%s/worker-7%s", folder, end);
    return path;
}

TEST(fleet_places, a_folder_is_put_aside_however_many_there_are)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    char folder[] = "/tmp/rg-places-XXXXXX";
    struct config c = {.state_dir = folder};

    cr_assert(mkdtemp(folder));
    s->config = &c;
    for (unsigned n = 0; n < MANY; n++)
        cr_assert_eq(mkdir(path_of(folder, n), 0700), 0);
    fleet_places_put_aside(s, 7);
    cr_assert(access(path_of(folder, 0), F_OK) != 0);
    for (unsigned n = 1; n <= MANY; n++)
        cr_assert_eq(rmdir(path_of(folder, n)), 0);
    cr_assert_eq(rmdir(folder), 0);
    free(s);
}

TEST(fleet_places, the_dispatchers_place_is_left_in_a_drain_if_the_store_has_all)
{
    struct supervisor *s = mem_zalloc(sizeof(*s));
    struct fleet_own_place own;

    s->board = board_new();
    s->fleet = place_table_new();
    s->listeners.dispatcher = -1;
    cr_assert(place_table_set_own(s->fleet, FLEET_DISPATCHER, 5, 0));
    place_table_set_base(s->fleet, FLEET_DISPATCHER, 5);
    fleet_places_forget_dispatcher(s);
    cr_assert(place_table_find_own(s->fleet, FLEET_DISPATCHER, &own) && own.left_epoch == 0);
    atomic_store(&s->board->leaving, 1);
    place_table_set_base(s->fleet, FLEET_DISPATCHER, 4);
    fleet_places_forget_dispatcher(s);
    cr_assert(place_table_find_own(s->fleet, FLEET_DISPATCHER, &own) && own.left_epoch == 0);
    place_table_set_base(s->fleet, FLEET_DISPATCHER, 5);
    fleet_places_forget_dispatcher(s);
    cr_assert(place_table_find_own(s->fleet, FLEET_DISPATCHER, &own) && own.left_epoch == 5);
    place_table_free(s->fleet);
    board_free(s->board);
    free(s);
}

static int never_run(const struct heritage *h)
{
    (void)h;
    return 1;
}

TEST(fleet_places, the_dispatchers_socket_is_open_before_routers_connect)
{
    static const struct supervisor_bodies bodies = {.dispatcher = never_run};
    struct supervisor *s = mem_zalloc(sizeof(*s));
    char folder[] = "/tmp/rg-places-XXXXXX", path[128];
    struct config c = {.state_dir = folder, .run_dir = folder, .dispatcher = true};

    cr_assert(mkdtemp(folder));
    s->config = &c;
    s->bodies = &bodies;
    s->board = board_new();
    s->metrics = metrics_new(BOARD_SLOTS);
    s->fleet = place_table_new();
    s->listeners.dispatcher = -1;
    cr_assert(place_table_set_own(s->fleet, FLEET_DISPATCHER, 5, 0));
    fleet_places_want(s);
    cr_assert_eq(atomic_load(&s->board->slots[BOARD_DISPATCHER].state), BOARD_STARTING);
    cr_assert_geq(s->listeners.dispatcher, 0);
    close(s->listeners.dispatcher);
    (void)snprintf(path, sizeof(path), "%s/dispatcher.sock", folder);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(folder), 0);
    place_table_free(s->fleet);
    metrics_free(s->metrics);
    board_free(s->board);
    free(s);
}
