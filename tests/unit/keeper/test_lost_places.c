#include "keeper/lost_places.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

enum { LEASE_MS = 1000 };

struct fleet_case {
    struct fleet_view v;
    struct node_entry self;
    uint64_t beat;
};

static void add_entry(struct fleet_case *f, const char *key, const char *value, const char *owner,
                      uint64_t beat, uint64_t now_ms)
{
    const struct store_entry e = {.key = str_cstr(key),
                                  .value = str_cstr(value),
                                  .owner = str_cstr(owner),
                                  .beat = beat,
                                  .epoch = 100,
                                  .edition = 1,
                                  .whole = true,
                                  .version = 3};

    fleet_view_add(&f->v, &e, now_ms);
}

static void add_node(struct fleet_case *f, const char *name, const char *tokenizer, uint32_t load,
                     uint64_t beat, uint64_t now_ms)
{
    struct node_entry n = {.address = "10.0.0.7:8600", .instance = "i", .build = "b", .load = load};
    struct buf value = {0};
    char key[80];

    (void)snprintf(n.tokenizer, sizeof(n.tokenizer), "%s", tokenizer);
    (void)snprintf(key, sizeof(key), "node:%s", name);
    node_entry_write(&n, &value);
    buf_add_c(&value, 0);
    add_entry(f, key, value.p, "", beat, now_ms);
    buf_done(&value);
}

/* "a" does not beat, and has the places 0 to n-1; "b" and this node do. */
static void list(struct fleet_case *f, unsigned n, uint64_t now_ms)
{
    char key[32];

    f->beat++;
    add_node(f, "a", "t", 0, 1, now_ms);
    add_node(f, "b", "t", 100, f->beat, now_ms);
    add_node(f, "me", "t", f->self.load, f->beat, now_ms);
    add_node(f, "other", "u", 0, f->beat, now_ms);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "place:%u", i);
        add_entry(f, key, "", "a", 1, now_ms);
    }
    add_entry(f, "place:256", "", "b", f->beat, now_ms);
    fleet_view_end_list(&f->v, now_ms);
}

static struct fleet_case begin_case(uint32_t load)
{
    struct fleet_case f = {.v = {.self = "me"}, .self = {.load = load, .newest_record = 3}};

    strcpy(f.self.tokenizer, "t");
    return f;
}

static struct lost_choice choose(struct fleet_case *f, size_t free, uint64_t now_ms)
{
    struct lost_query q = {.self = &f->self, .lease_ms = LEASE_MS, .now_ms = now_ms, .free = free};
    struct lost_choice c;

    lost_places_choose(&f->v, &q, &c);
    return c;
}

TEST(lost_places, a_share_is_claimed_after_a_lease)
{
    struct fleet_case f = begin_case(0);
    struct lost_choice c;

    list(&f, 4, 5000);
    list(&f, 4, 5900);
    c = choose(&f, 256, 5900);
    cr_assert_eq(c.n, 0);
    cr_assert_eq(c.due_ms, 6000, "when the lease is over");
    list(&f, 4, 6000);
    c = choose(&f, 256, 6000);
    cr_assert_eq(c.unserved, 4);
    cr_assert_eq(c.n, 2, "half of them: node b has the others");
    cr_assert(c.claims[0] == 0 && c.claims[1] == 1, "the least loaded is first");
    c = choose(&f, 1, 6000);
    cr_assert_eq(c.n, 1);
    c = choose(&f, 0, 6000);
    cr_assert(c.n == 0 && c.why, "all places are used");
    fleet_view_done(&f.v);
}

TEST(lost_places, a_loaded_node_waits_and_takes_other_places)
{
    struct fleet_case f = begin_case(1000);
    struct lost_choice c;

    list(&f, 4, 5000);
    list(&f, 4, 6000);
    c = choose(&f, 256, 6000);
    cr_assert_eq(c.n, 0);
    cr_assert_eq(c.due_ms, 6000 + LEASE_MS / 4);
    c = choose(&f, 256, 6000 + LEASE_MS / 4);
    cr_assert(c.n == 2 && c.claims[0] == 2 && c.claims[1] == 3);
    fleet_view_done(&f.v);
}

TEST(lost_places, a_break_of_the_connection_begins_the_lease_anew)
{
    struct fleet_case f = begin_case(0);

    list(&f, 1, 5000);
    fleet_view_interrupt(&f.v);
    cr_assert_eq(choose(&f, 256, 7000).n, 0);
    list(&f, 1, 7000);
    cr_assert_eq(choose(&f, 256, 7000).n, 0);
    list(&f, 1, 8000);
    cr_assert_eq(choose(&f, 256, 8000).n, 1);
    fleet_view_done(&f.v);
}

static void check_obstacle(struct fleet_case *f, struct seen_place p, const char *why)
{
    struct seen_place *at = fleet_view_place(&f->v, 0), kept = *at;
    struct lost_choice c;

    at->whole = p.whole;
    at->version = p.version;
    memcpy(at->owner, p.owner, sizeof(at->owner));
    c = choose(f, 256, 6000);
    cr_assert_eq(c.n, 0);
    cr_assert(c.why && strstr(c.why, why), "%s", c.why);
    cr_assert(c.refused == 0 && c.unserved == 1);
    *at = kept;
}

TEST(lost_places, what_cannot_be_adopted_is_named)
{
    struct fleet_case f = begin_case(0);

    list(&f, 1, 5000);
    list(&f, 1, 6000);
    check_obstacle(&f, (struct seen_place){.owner = "a", .version = 3}, "store lacks");
    check_obstacle(&f, (struct seen_place){.owner = "a", .whole = true, .version = 4}, "newer");
    check_obstacle(&f, (struct seen_place){.owner = "gone", .whole = true}, "tokenizer");
    strcpy(f.self.tokenizer, "u");
    check_obstacle(&f, (struct seen_place){.owner = "a", .whole = true}, "tokenizer");
    fleet_view_done(&f.v);
}

TEST(lost_places, a_released_place_is_claimed_at_once)
{
    struct fleet_case f = begin_case(0);

    add_entry(&f, "block:0", "a", "", 0, 5000);
    list(&f, 1, 5000);
    add_entry(&f, "place:0", "", "", 1, 5001);
    cr_assert_eq(choose(&f, 256, 5001).n, 1);
    fleet_view_done(&f.v);
}
