#include "common/fleet/place_table.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

static struct fleet_node make_node(const char *name, uint32_t load)
{
    struct fleet_node node = {.state = FLEET_UP, .load = load};

    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.address, sizeof(node.address), "%s:8080", name);
    return node;
}

TEST(place_table, a_place_has_an_owner_an_epoch_and_is_whole)
{
    struct place_table *t = place_table_new();
    struct fleet_place got;
    uint32_t before = place_table_generation(t);

    cr_assert_not(place_table_find(t, 7, &got));
    cr_assert(place_table_set(
        t, &(struct fleet_place){.index = 7, .node = 255, .epoch = FLEET_EPOCH_MAX}));
    cr_assert(place_table_find(t, 7, &got));
    cr_assert(got.index == 7 && got.node == 255 && got.epoch == FLEET_EPOCH_MAX && !got.whole);
    cr_assert_neq(place_table_generation(t), before);
    before = place_table_generation(t);
    cr_assert(place_table_set(t, &got));
    cr_assert_eq(place_table_generation(t), before, "nothing has changed");
    cr_assert_eq(place_table_place_changes(t), 1);
    cr_assert(place_table_set(
        t, &(struct fleet_place){.index = 7, .node = FLEET_NO_NODE, .epoch = 1, .whole = true}));
    cr_assert(place_table_find(t, 7, &got));
    cr_assert(got.node == FLEET_NO_NODE && got.epoch == 1 && got.whole);
    cr_assert_not(place_table_set(t, &(struct fleet_place){.index = 7, .epoch = 0}));
    cr_assert_not(
        place_table_set(t, &(struct fleet_place){.index = 7, .epoch = FLEET_EPOCH_MAX + 1}));
    place_table_remove(t, 7);
    cr_assert_not(place_table_find(t, 7, &got));
    place_table_free(t);
}

TEST(place_table, all_places_that_fit_are_found_and_one_more_is_refused)
{
    struct place_table *t = place_table_new();
    struct fleet_place got;
    size_t at = 0, n = 0;

    for (uint32_t i = 0; i < FLEET_PLACES_MAX; i++)
        cr_assert(place_table_set(t, &(struct fleet_place){.index = i * 15, .epoch = 1 + i}));
    cr_assert_not(place_table_set(t, &(struct fleet_place){.index = FLEET_DISPATCHER, .epoch = 1}));
    for (uint32_t i = 0; i < FLEET_PLACES_MAX; i++)
        cr_assert(place_table_find(t, i * 15, &got) && got.index == i * 15 && got.epoch == 1 + i);
    cr_assert_not(place_table_find(t, 1, &got));
    while (place_table_next(t, &at, &got))
        n++;
    cr_assert_eq(n, FLEET_PLACES_MAX);
    place_table_begin(t);
    cr_assert_not(place_table_set(t, &(struct fleet_place){.index = 1, .epoch = 1}),
                  "a keeper that begins again counts the rows");
    place_table_free(t);
}

TEST(place_table, a_node_keeps_its_slot)
{
    struct place_table *t = place_table_new();
    struct fleet_node a = make_node("a", 100), b = make_node("b", 200), got;
    uint32_t slot_a = place_table_slot(t, "a"), slot_b;

    place_table_set_node(t, slot_a, &a);
    slot_b = place_table_slot(t, "b");
    cr_assert_neq(slot_a, slot_b);
    place_table_set_node(t, slot_b, &b);
    cr_assert_eq(place_table_place_changes(t), 0, "no place has changed");
    place_table_set_self(t, slot_b);
    cr_assert_eq(place_table_slot(t, "a"), slot_a);
    cr_assert(place_table_node(t, slot_b, &got) && got.is_self && got.load == 200);
    cr_assert_str_eq(got.address, "b:8080");
    cr_assert(place_table_node(t, slot_a, &got) && !got.is_self);
    cr_assert_not(place_table_node(t, 200, &got));
    cr_assert_not(place_table_node(t, FLEET_NO_NODE, &got));
    for (unsigned i = 2; i < FLEET_NODES_MAX; i++) {
        char name[16];
        struct fleet_node node;

        (void)snprintf(name, sizeof(name), "n%u", i);
        node = make_node(name, i);
        place_table_set_node(t, place_table_slot(t, name), &node);
    }
    cr_assert_eq(place_table_slot(t, "one-too-many"), FLEET_NO_NODE);
    cr_assert_eq(place_table_slot(t, "b"), slot_b);
    place_table_free(t);
}

TEST(place_table, a_reader_never_sees_half_of_a_change)
{
    struct place_table *t = place_table_new();
    struct fleet_node names[2] = {make_node("same", 0), make_node("same", 1)}, got;
    pid_t keeper;

    memset(names[0].address, 'x', sizeof(names[0].address) - 1);
    memset(names[1].address, 'y', sizeof(names[1].address) - 1);
    place_table_set_node(t, 3, &names[0]);
    keeper = fork();
    if (keeper == 0) {
        for (unsigned i = 0; i < 200000; i++)
            place_table_set_node(t, 3, &names[i & 1]);
        place_table_set_self(t, 3);
        _exit(0);
    }
    while (place_table_self(t) != 3) {
        if (!place_table_node(t, 3, &got))
            continue;
        got.is_self = false;
        cr_assert_str_eq(got.address, names[got.load].address);
    }
    cr_assert_eq(waitpid(keeper, NULL, 0), keeper);
    place_table_free(t);
}

TEST(place_table, an_own_place_answers_while_it_is_renewed)
{
    struct place_table *t = place_table_new();
    struct fleet_own_place got;
    size_t at = 0;

    cr_assert_eq(place_table_own_epoch(t, 300), 0);
    cr_assert_not(place_table_may_answer(t, 300, 1));
    cr_assert(place_table_set_own(t, 300, 9, 0));
    cr_assert_eq(place_table_own_epoch(t, 300), 9);
    cr_assert(place_table_may_answer(t, 300, 1));
    cr_assert_not(place_table_may_read(t, 300, 1000, 5000), "not renewed yet");
    place_table_set_renewed(t, 300, 1000);
    cr_assert(place_table_may_read(t, 300, 4999, 5000));
    cr_assert_not(place_table_may_read(t, 300, 5000, 5000), "0.8 of the lease");
    place_table_report_whole(t, 300, 9, 4);
    place_table_report_behind(t, 300, 4);
    place_table_report_fenced(t, 300, 8);
    place_table_report_left(t, 300, 9);
    cr_assert(place_table_next_own(t, &at, &got));
    cr_assert(got.index == 300 && got.epoch == 9 && got.whole_epoch == 9 && got.behind == 4 &&
              got.fenced_epoch == 8 && got.left_epoch == 9 && got.renewed_ms == 1000);
    cr_assert_not(place_table_next_own(t, &at, &got));
    cr_assert_eq(place_table_own_base(t, 300), 0);
    place_table_set_base(t, 300, 7);
    place_table_begin(t);
    cr_assert_eq(place_table_own_base(t, 300), 7, "the keeper begins anew");
    cr_assert(place_table_set_own(t, 300, 10, 7000));
    cr_assert_not(place_table_may_answer(t, 300, 6999));
    cr_assert(place_table_may_answer(t, 300, 7000));
    cr_assert_not(place_table_may_read(t, 300, 7000, 5000), "a claim is no renewal");
    cr_assert(place_table_set_own(t, 300, 0, 0));
    cr_assert_eq(place_table_own_epoch(t, 300), 0);
    place_table_free(t);
}

TEST(place_table, a_node_owns_256_places_and_the_dispatchers)
{
    struct place_table *t = place_table_new();
    struct fleet_own_place got;
    size_t at = 0;

    for (uint32_t i = 0; i < FLEET_OWN_MAX; i++)
        cr_assert(place_table_set_own(t, i * 256, 1 + i, 0));
    cr_assert_not(place_table_set_own(t, 5, 1, 0));
    cr_assert(place_table_set_own(t, FLEET_DISPATCHER, 77, 0));
    cr_assert_eq(place_table_own_epoch(t, FLEET_DISPATCHER), 77);
    for (uint32_t i = 0; i < FLEET_OWN_MAX; i++)
        cr_assert_eq(place_table_own_epoch(t, i * 256), 1 + i);
    place_table_report_whole(t, 512, 3, 0);
    place_table_set_base(t, 512, 3);
    cr_assert(place_table_set_own(t, 512, 0, 0));
    cr_assert(place_table_set_own(t, 5, 3, 0));
    cr_assert_eq(place_table_own_epoch(t, 5), 3);
    while (place_table_next_own(t, &at, &got))
        cr_assert(got.index != 5 || (got.whole_epoch == 0 && got.base == 0), "it was place 512's");
    place_table_free(t);
}

TEST(place_table, a_vacant_place_is_not_found_until_a_node_has_it)
{
    struct place_table *t = place_table_new();
    struct fleet_place got, place = {.index = 7, .node = 1, .epoch = 9, .whole = true};
    uint32_t before, index;
    size_t at = 0;

    cr_assert_not(place_table_is_vacant(t, 7));
    cr_assert(place_table_set(t, &place));
    before = place_table_generation(t);
    cr_assert(place_table_set_vacant(t, 7, false));
    cr_assert_neq(place_table_generation(t), before);
    cr_assert(place_table_is_vacant(t, 7));
    cr_assert_not(place_table_find(t, 7, &got));
    cr_assert_not(place_table_had(t, 7));
    cr_assert_not(place_table_next(t, &at, &got));
    at = 0;
    cr_assert_not(place_table_next_had(t, &at, &index));
    cr_assert(place_table_set(t, &place));
    cr_assert(place_table_find(t, 7, &got) && place_table_had(t, 7));
    for (int lost = 0; lost < 2; lost++) {
        at = 0;
        cr_assert(place_table_next_had(t, &at, &index) && index == 7);
        cr_assert_not(place_table_next_had(t, &at, &index));
        place_table_remove(t, 7);
    }
    cr_assert(place_table_set(t, &place));
    cr_assert_not(place_table_is_vacant(t, 7));
    place_table_free(t);
}

TEST(place_table, a_place_is_abandoned_under_one_epoch)
{
    struct place_table *t = place_table_new();
    struct fleet_own_place got;

    cr_assert_not(place_table_find_own(t, 300, &got));
    cr_assert(place_table_set_own(t, 300, 9, 0));
    place_table_report_empty(t, 300, 9);
    place_table_abandon(t, 300, 9, true);
    cr_assert(place_table_find_own(t, 300, &got));
    cr_assert(got.empty_epoch == 9 && got.abandoned_epoch == 9 && got.failed_epoch == 9);
    place_table_abandon(t, 300, 0, false);
    cr_assert(place_table_find_own(t, 300, &got));
    cr_assert(got.abandoned_epoch == 0 && got.failed_epoch == 0);
    cr_assert_not(place_table_find_own(t, 44, &got), "the row of another place");
    place_table_free(t);
}

TEST(place_table, only_a_node_of_the_same_model_that_is_up_is_a_successor)
{
    struct place_table *t = place_table_new();
    struct fleet_node node = {.name = "a", .state = FLEET_UP, .model = 1};

    place_table_set_node(t, 0, &node);
    place_table_set_self(t, 0);
    cr_assert(!place_table_has_successor(t));
    node.model = 2;
    place_table_set_node(t, 1, &node);
    node.model = 1;
    node.state = FLEET_DRAINING;
    place_table_set_node(t, 2, &node);
    cr_assert(!place_table_has_successor(t));
    node.state = FLEET_UP;
    place_table_set_node(t, 2, &node);
    cr_assert(place_table_has_successor(t));
    place_table_free(t);
}
