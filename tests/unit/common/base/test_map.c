#include "common/base/map.h"

#include <stdio.h>

#include "testing.h"

/* Compares random sets and removals with a plain table of 512 keys. */
TEST(map, agrees_with_a_plain_table)
{
    static char names[512][8];
    static int values[512];
    int *stored[512] = {0};
    struct map m = {0};
    unsigned rng = 7;
    size_t count = 0;

    for (int i = 0; i < 512; i++)
        (void)snprintf(names[i], sizeof(names[i]), "k%d", i);
    for (int step = 0; step < 100000; step++) {
        size_t k;

        rng = rng * 1664525u + 1013904223u;
        k = (rng >> 8) % 512;
        if (rng & 0x80) {
            cr_assert_eq(map_set(&m, str_cstr(names[k]), &values[k]), stored[k]);
            stored[k] = &values[k];
        } else {
            cr_assert_eq(map_take(&m, str_cstr(names[k])), stored[k]);
            stored[k] = NULL;
        }
    }
    for (size_t k = 0; k < 512; k++) {
        cr_assert_eq(map_get(&m, str_cstr(names[k])), stored[k]);
        count += stored[k] != NULL;
    }
    cr_assert_eq(m.n, count);
    map_done(&m);
}

static size_t count_all(const struct map *m)
{
    size_t at = 0, n = 0;

    while (map_next(m, &at))
        n++;
    return n;
}

/* While the map grows in steps, entries that are set, replaced, removed and looked up may be in
 * either table. */
TEST(map, agrees_with_a_plain_table_while_it_grows_in_steps)
{
    enum { KEYS = 40000 };

    static char names[KEYS][8];
    static int values[2];
    static int *stored[KEYS];
    struct map m = {0};
    unsigned rng = 11;
    size_t count = 0, in_steps = 0;

    for (int i = 0; i < KEYS; i++)
        (void)snprintf(names[i], sizeof(names[i]), "k%d", i);
    for (size_t fresh = 0; fresh < KEYS; fresh++) {
        for (int i = 0; i < 3; i++) {
            size_t k;

            rng = rng * 1664525u + 1013904223u;
            k = (rng >> 8) % (fresh + 1);
            cr_assert_eq(map_get(&m, str_cstr(names[k])), stored[k]);
            if (i == 0 || (rng & 0x80)) {
                int *value = &values[rng & 1];

                k = i == 0 ? fresh : k;
                count += stored[k] == NULL;
                cr_assert_eq(map_set(&m, str_cstr(names[k]), value), stored[k]);
                stored[k] = value;
            } else if ((rng & 0x60) == 0) {
                count -= stored[k] != NULL;
                cr_assert_eq(map_take(&m, str_cstr(names[k])), stored[k]);
                stored[k] = NULL;
            }
        }
        cr_assert_eq(m.n, count);
        in_steps += m.leaving != NULL;
        if (fresh % 997 == 0)
            cr_assert_eq(count_all(&m), count);
    }
    cr_assert(in_steps > 1000, "it grew in steps for %zu entries", in_steps);
    for (size_t k = 0; k < KEYS; k++)
        cr_assert_eq(map_get(&m, str_cstr(names[k])), stored[k]);
    cr_assert_eq(count_all(&m), count);
    map_done(&m);
    cr_assert(map_bytes(&m) == 0 && m.n == 0);
}

TEST(map, is_freed_in_the_middle_of_its_growth)
{
    enum { KEYS = 1600 };

    static char names[KEYS][8];
    struct map m = {0};

    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%d", i);
        (void)map_set(&m, str_cstr(names[i]), names[i]);
    }
    while (!m.leaving) { /* the next growth, with new entries only */
        static char more[KEYS * 4][8];
        size_t i = m.n;

        (void)snprintf(more[i], sizeof(more[i]), "m%zu", i);
        (void)map_set(&m, str_cstr(more[i]), more[i]);
    }
    cr_assert_eq(count_all(&m), m.n);
    map_done(&m);
    cr_assert_eq(map_get(&m, str_cstr("k1")), NULL);
}

/* Many maps have one entry, so the first table is small. */
TEST(map, takes_little_for_few_entries)
{
    static char name[] = "k", names[12][4];
    struct map m = {0};
    size_t at = 0;

    (void)map_set(&m, str_cstr(name), name);
    cr_expect_leq(map_bytes(&m), 96);
    cr_expect(str_eq_c(map_slot_key(map_next(&m, &at)), "k"));
    for (int i = 0; i < 11; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "n%d", i);
        (void)map_set(&m, str_cstr(names[i]), names[i]);
    }
    cr_expect_leq(map_bytes(&m), 384);
    cr_expect_eq(count_all(&m), 12);
    map_done(&m);
}
