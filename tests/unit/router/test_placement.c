#include "router/placement.h"

#include <stdio.h>

#include "common/fleet/place_table.h"
#include "common/proc/heritage.h"
#include "testing.h"

enum { CAPACITY = 1000 };

static uint32_t add_node(struct place_table *t, const char *name, uint32_t sessions, uint32_t calls)
{
    struct fleet_node node = {
        .state = FLEET_UP, .sessions = sessions, .calls = calls, .capacity = CAPACITY};
    uint32_t slot = place_table_slot(t, name);

    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    place_table_set_node(t, slot, &node);
    return slot;
}

static uint32_t choose(const struct place_table *t, uint32_t sessions, uint32_t calls)
{
    return placement_choose(t, &(struct heritage_load){sessions, calls, CAPACITY, 0}, 7);
}

TEST(placement, a_node_makes_its_sessions_until_it_has_more_than_the_mean)
{
    struct place_table *t = place_table_new();
    uint32_t other;

    place_table_set_self(t, add_node(t, "self", 0, 0));
    cr_assert_eq(choose(t, 900, 0), FLEET_NO_NODE, "there is no other node");
    other = add_node(t, "other", 10, 0);
    cr_assert_eq(choose(t, 41, 0), FLEET_NO_NODE, "15.5 sessions above the mean");
    cr_assert_eq(choose(t, 42, 0), other, "16 above the mean");
    (void)add_node(t, "other", 300, 0);
    cr_assert_eq(choose(t, 400, 0), FLEET_NO_NODE, "1.14 times the mean");
    cr_assert_eq(choose(t, 600, 0), other);
    (void)add_node(t, "other", 300, 100);
    cr_assert_eq(choose(t, 600, 0), FLEET_NO_NODE, "a running call counts as four sessions");
    place_table_free(t);
}

TEST(placement, a_full_node_asks_any_that_is_not)
{
    struct place_table *t = place_table_new();
    uint32_t other;

    place_table_set_self(t, add_node(t, "self", 0, 0));
    other = add_node(t, "other", 990, 0);
    cr_assert_eq(choose(t, CAPACITY, 0), other);
    cr_assert_eq(placement_choose(t, &(struct heritage_load){0, 0, 0, 0}, 7), other,
                 "a node without capacity takes none");
    (void)add_node(t, "other", CAPACITY, 0);
    cr_assert_eq(choose(t, CAPACITY, 0), FLEET_NO_NODE);
    place_table_free(t);
}

TEST(placement, the_less_loaded_of_two_that_are_drawn_is_chosen)
{
    struct place_table *t = place_table_new();
    unsigned n[3] = {0};
    uint32_t slots[3];
    char name[8];

    place_table_set_self(t, add_node(t, "self", 0, 0));
    for (uint32_t i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        slots[i] = add_node(t, name, 10 + i, 0);
    }
    for (uint64_t random = 0; random < 900; random++) {
        uint32_t slot = placement_choose(t, &(struct heritage_load){500, 0, CAPACITY, 0}, random);

        for (unsigned i = 0; i < 3; i++)
            n[i] += slot == slots[i];
    }
    cr_assert_eq(n[0] + n[1] + n[2], 900);
    cr_assert(n[0] > 400 && n[1] > 200 && n[2] > 30 && n[2] < 200, "%u %u %u", n[0], n[1], n[2]);
    place_table_free(t);
}
