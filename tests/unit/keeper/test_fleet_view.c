#include "keeper/fleet_view.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

enum { LEASE_MS = 5000 };

static void add(struct fleet_view *v, const char *key, const char *value, const char *owner,
                uint64_t beat, uint64_t now_ms)
{
    const struct store_entry e = {.key = str_cstr(key),
                                  .value = str_cstr(value),
                                  .owner = str_cstr(owner),
                                  .beat = beat,
                                  .epoch = 100 + beat,
                                  .edition = 1,
                                  .whole = true};

    fleet_view_add(v, &e, now_ms);
}

static void add_node(struct fleet_view *v, const char *name, uint64_t beat, uint64_t now_ms)
{
    struct node_entry n = {
        .address = "10.0.0.7:8600", .instance = "i", .build = "b", .tokenizer = "t", .block = 1};
    struct buf value = {0};
    char key[80];

    (void)snprintf(key, sizeof(key), "node:%s", name);
    node_entry_write(&n, &value);
    buf_add_c(&value, 0);
    add(v, key, value.p, "", beat, now_ms);
    buf_done(&value);
}

static enum fleet_node_state state_of(struct fleet_view *v, struct place_table *t, const char *name)
{
    struct fleet_node node = {0};

    (void)fleet_view_publish(v, t, LEASE_MS);
    cr_assert(place_table_node(t, place_table_slot(t, name), &node));
    return node.state;
}

/* Adds a list with one node and one place. */
static void list(struct fleet_view *v, uint64_t beat, uint64_t now_ms)
{
    add_node(v, "a", beat, now_ms);
    add(v, "place:256", "", "a", beat, now_ms);
    fleet_view_end_list(v, now_ms);
}

TEST(fleet_view, a_node_is_lost_when_its_beat_was_seen_for_a_lease)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};
    struct fleet_place place;
    struct fleet_node node;

    list(&v, 3, 1000);
    cr_assert_not(fleet_view_has_beaten(&v, fleet_view_node(&v, "a")));
    list(&v, 4, 4000);
    cr_assert(fleet_view_has_beaten(&v, fleet_view_node(&v, "a")));
    list(&v, 4, 4000 + LEASE_MS - 1);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_UP);
    cr_assert(place_table_find(t, 256, &place) && place.epoch == 104 && place.whole);
    cr_assert(place_table_node(t, place.node, &node));
    cr_assert_str_eq(node.name, "a");
    list(&v, 4, 4000 + LEASE_MS);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_LOST);
    list(&v, 5, 4001 + LEASE_MS);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_UP);
    fleet_view_done(&v);
    place_table_free(t);
}

TEST(fleet_view, an_outage_of_the_store_makes_no_node_look_lost)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};

    list(&v, 4, 1000);
    fleet_view_interrupt(&v);
    list(&v, 4, 1000 + 3 * LEASE_MS);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_UP);
    list(&v, 4, 1000 + 4 * LEASE_MS - 1);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_UP);
    list(&v, 4, 1000 + 4 * LEASE_MS);
    cr_assert_eq(state_of(&v, t, "a"), FLEET_LOST);
    fleet_view_done(&v);
    place_table_free(t);
}

TEST(fleet_view, what_a_list_lacks_is_gone)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};
    struct fleet_place place;

    add_node(&v, "a", 1, 1000);
    add(&v, "place:7", "", "a", 1, 1000);
    add(&v, "place:8", "", "nobody-knows", 1, 1000);
    add(&v, "fleet", "{}", "", 0, 1000);
    fleet_view_end_list(&v, 1000);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(place_table_find(t, 7, &place));
    cr_assert(place_table_find(t, 8, &place) && place.node == FLEET_NO_NODE);
    fleet_view_end_list(&v, 1000); /* an empty list */
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert_not(place_table_find(t, 7, &place));
    cr_assert_null(fleet_view_node(&v, "a"));
    cr_assert_eq(v.fleet.len, 0);
    fleet_view_done(&v);
    place_table_free(t);
}

TEST(fleet_view, a_place_whose_change_was_told_before_the_store_was_emptied_is_gone)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};
    struct fleet_place place;

    list(&v, 3, 1000);
    fleet_view_place(&v, 256)->base = 80;
    for (int i = 0; i < 3; i++) {
        fleet_view_add(&v, &(struct store_entry){.key = STR("place:256")}, 2000);
        cr_assert_null(fleet_view_place(&v, 256));
        cr_assert_eq(fleet_view_gone(&v, 256)->base, 80, "the claim that its owner brings back");
        fleet_view_end_list(&v, 2000);
    }
    cr_assert_eq(fleet_view_publish(&v, t, LEASE_MS), 0);
    cr_assert_not(place_table_find(t, 256, &place));
    fleet_view_done(&v);
    place_table_free(t);
}

TEST(fleet_view, a_node_gets_its_own_block_or_the_smallest_free_one)
{
    struct fleet_view v = {0};

    cr_assert_eq(fleet_view_choose_block(&v, "a", FLEET_BLOCKS, 2), 0);
    add(&v, "block:0", "a", "", 0, 1);
    add(&v, "block:1", "", "", 0, 1); /* released, but the block has a place */
    add(&v, "place:300", "", "", 0, 1);
    add(&v, "block:2", "b", "", 0, 1);
    add(&v, "block:3906", "b", "", 0, 1); /* an invalid block */
    cr_assert_eq(fleet_view_choose_block(&v, "a", FLEET_BLOCKS, 2), 0);
    cr_assert_eq(fleet_view_choose_block(&v, "b", FLEET_BLOCKS, 2), 2);
    cr_assert_eq(fleet_view_choose_block(&v, "c", FLEET_BLOCKS, 2), 3);
    cr_assert_eq(fleet_view_choose_block(&v, "c", 1, 2), 1, "its sessions are in the state folder");
    cr_assert_eq(fleet_view_choose_block(&v, "c", 7, 2), 7);
    cr_assert_eq(fleet_view_choose_block(&v, "c", 2, 2), 3, "another node has it");
    cr_assert_eq(fleet_view_choose_block(&v, "b", 2, 2), 2);
    fleet_view_end_list(&v, 1000);
    fleet_view_end_list(&v, 1000);
    cr_assert_eq(fleet_view_choose_block(&v, "c", FLEET_BLOCKS, 2), 0);
    fleet_view_done(&v);
}

TEST(fleet_view, a_place_is_lost_with_the_beat_of_its_node)
{
    struct fleet_view v = {0};
    struct seen_place *p;
    struct store_beat beat = {STR("a"), 1};
    struct store_entry e = {.key = STR("place:7"), .owner = STR("a"), .beat = 1, .epoch = 9};

    add_node(&v, "a", 1, 1000);
    fleet_view_add(&v, &e, 1000);
    fleet_view_end_list(&v, 1000);
    p = fleet_view_place(&v, 7);
    cr_assert_eq(fleet_view_silent_ms(&v, p, LEASE_MS), 1000 + LEASE_MS);
    beat.beat = 2;
    cr_assert(fleet_view_beat(&v, &beat, 3000));
    cr_assert_eq(fleet_view_silent_ms(&v, p, LEASE_MS), 3000 + LEASE_MS,
                 "it beats, as no list shows");
    cr_assert(fleet_view_beat(&v, &beat, 3000 + LEASE_MS));
    cr_assert(fleet_view_is_lost(&v, fleet_view_node(&v, "a"), LEASE_MS));
    add_node(&v, "a", 2, 3000 + LEASE_MS);
    e.beat = 2; /* renewed at 3000, which is seen now */
    fleet_view_add(&v, &e, 3000 + LEASE_MS);
    cr_assert_leq(fleet_view_lost_ms(&v, p, LEASE_MS), p->seen_ms, "no second lease");
    beat.beat = 3;
    cr_assert(fleet_view_beat(&v, &beat, 9000));
    fleet_view_add(&v, &e, 9000 + LEASE_MS); /* its node lives and does not renew it */
    cr_assert_leq(fleet_view_lost_ms(&v, p, LEASE_MS), p->seen_ms);
    beat.node = STR("b");
    cr_assert_not(fleet_view_beat(&v, &beat, 9000));
    fleet_view_interrupt(&v);
    cr_assert_eq(fleet_view_silent_ms(&v, p, LEASE_MS), 0);
    fleet_view_done(&v);
}

TEST(fleet_view, vacant_places_do_not_keep_a_block)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {.self = "a"};
    struct store_entry vacant = {.key = STR("place:0"), .epoch = 9, .whole = true, .vacant = true};
    char key[16];

    add(&v, "block:0", "a", "", 0, 1);
    for (unsigned i = 1; i < FLEET_BLOCK_SIZE - 1; i++) {
        (void)snprintf(key, sizeof(key), "place:%u", i);
        add(&v, key, "", "b", 1, 1);
    }
    fleet_view_add(&v, &vacant, 1);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(place_table_is_vacant(t, 0));
    cr_assert_eq(fleet_view_choose_block(&v, "a", 0, 2), 0, "a vacant and a new index are left");
    cr_assert_eq(fleet_view_choose_block(&v, "a", 0, 3), 1, "a second block");
    cr_assert_eq(fleet_view_choose_block(&v, "a", FLEET_BLOCKS, 3), 1);
    vacant.owner = STR("b");
    fleet_view_add(&v, &vacant, 2);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert_not(place_table_is_vacant(t, 0));
    cr_assert_eq(fleet_view_choose_block(&v, "a", 0, 2), 1);
    add(&v, "block:0", "", "", 0, 2);
    for (unsigned i = 1; i < FLEET_BLOCK_SIZE - 1; i++) {
        (void)snprintf(key, sizeof(key), "place:%u", i);
        vacant = (struct store_entry){.key = str_cstr(key), .epoch = 9, .vacant = true};
        fleet_view_add(&v, &vacant, 2);
    }
    cr_assert_eq(fleet_view_choose_block(&v, "c", FLEET_BLOCKS, 1), 1, "place 0 has sessions");
    vacant = (struct store_entry){.key = STR("place:0"), .epoch = 9, .vacant = true};
    fleet_view_add(&v, &vacant, 2);
    cr_assert_eq(fleet_view_choose_block(&v, "c", FLEET_BLOCKS, 1), 0);
    fleet_view_done(&v);
    place_table_free(t);
}

static bool has_slot(struct place_table *t, const char *name)
{
    struct fleet_node node;

    return place_table_node(t, place_table_slot(t, name), &node) && strcmp(node.name, name) == 0;
}

TEST(fleet_view, lost_nodes_without_places_give_their_slots_to_others)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {.self = "self"};
    struct fleet_node self = {.name = "self"};
    char name[16];

    place_table_set_node(t, place_table_slot(t, "self"), &self);
    for (unsigned i = 0; i < FLEET_NODES_MAX; i++) { /* one node more than there are slots */
        (void)snprintf(name, sizeof(name), "n%u", i);
        add_node(&v, name, 1, 1000);
    }
    add(&v, "place:7", "", "n0", 1, 1000);
    fleet_view_end_list(&v, 1000);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(has_slot(t, "self"));
    cr_assert_eq(place_table_slot(t, "late"), FLEET_NO_NODE);
    for (unsigned i = 0; i < FLEET_NODES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        add_node(&v, name, 1, 1000 + LEASE_MS);
    }
    add(&v, "place:7", "", "n0", 1, 1000 + LEASE_MS);
    add_node(&v, "late", 1, 1000 + LEASE_MS);
    fleet_view_end_list(&v, 1000 + LEASE_MS);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(has_slot(t, "self") && has_slot(t, "late") && has_slot(t, "n0"));
    fleet_view_done(&v);
    place_table_free(t);
}

static void add_orders(struct fleet_view *v, uint64_t edition, const char *value)
{
    fleet_view_add(
        v,
        &(struct store_entry){.key = STR("orders"), .value = str_cstr(value), .edition = edition},
        1);
}

TEST(fleet_view, the_newest_orders_outlive_a_store_that_lost_them)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};

    cr_assert_eq(place_table_orders(t), 0, "not read yet");
    add_orders(&v, 7, "seven");
    fleet_view_end_list(&v, 1);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(place_table_orders(t) == 8 && !fleet_view_lacks_orders(&v));
    add_orders(&v, 6, "six");
    fleet_view_end_list(&v, 2);
    cr_assert(fleet_view_lacks_orders(&v) && str_eq_c(buf_str(&v.orders), "seven"));
    fleet_view_end_list(&v, 3);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert(fleet_view_lacks_orders(&v) && place_table_orders(t) == 1);
    add_orders(&v, 9, "nine");
    fleet_view_end_list(&v, 4);
    cr_assert(!fleet_view_lacks_orders(&v) && v.orders_edition == 9);
    fleet_view_done(&v);
    place_table_free(t);
}

TEST(fleet_view, only_a_complete_list_lowers_the_edition_of_the_orders)
{
    struct place_table *t = place_table_new();
    struct fleet_view v = {0};

    add_orders(&v, 7, "seven");
    fleet_view_end_list(&v, 1);
    fleet_view_raise_edition(&v, 9); /* a renewal knows it before the entry is reported */
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert_eq(place_table_orders(t), 10);
    add_orders(&v, 7, "seven");
    fleet_view_raise_edition(&v, 6);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert_eq(place_table_orders(t), 10);
    fleet_view_end_list(&v, 2);
    (void)fleet_view_publish(&v, t, LEASE_MS);
    cr_assert_eq(place_table_orders(t), 8, "the store has lost its tail");
    fleet_view_done(&v);
    place_table_free(t);
}
