#include "common/base/map.h"

#include <stdio.h>

#include "testing.h"

/* Random sets and removals against a plain table of 512 keys. */
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
