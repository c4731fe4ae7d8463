#include "common/base/lookup.h"
#include "testing.h"

TEST(lookup, finds_what_was_added_and_keeps_the_first)
{
    struct arena a = {0};
    struct lookup l = {.arena = &a};

    cr_expect_eq(lookup_get(&l, STR("x")), LOOKUP_NONE);
    for (uint32_t i = 0; i < 5000; i++)
        cr_expect(lookup_add(&l, arena_printf(&a, "key %u", i), i));
    cr_expect(!lookup_add(&l, STR("key 7"), 1));
    for (uint32_t i = 0; i < 5000; i++)
        cr_expect_eq(lookup_get(&l, arena_printf(&a, "key %u", i)), i);
    cr_expect_eq(lookup_get(&l, STR("key 5000")), LOOKUP_NONE);
    cr_expect(lookup_add(&l, STR(""), 9));
    cr_expect_eq(lookup_get(&l, STR("")), 9);
    arena_done(&a);
}
