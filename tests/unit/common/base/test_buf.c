#include <criterion/criterion.h>
#include <stdint.h>

#include "common/base/buf.h"

Test(buf, formats_into_the_room_and_beyond_it)
{
    struct buf b = {0};
    char wide[400];

    for (size_t n = 0; n < sizeof(wide) - 1; n++) {
        memset(wide, 'x', n);
        wide[n] = 0;
        buf_clear(&b);
        buf_puts(&b, "<");
        buf_printf(&b, "%s|%d", wide, 7);
        cr_assert_eq(b.len, n + 3);
        cr_assert_eq(memcmp(b.p + 1, wide, n), 0);
        cr_assert_eq(memcmp(b.p + 1 + n, "|7", 2), 0);
        if (n % 37 == 0)
            buf_done(&b); /* also from the first room on */
    }
    buf_done(&b);
}

Test(buf, adds_numbers)
{
    struct buf b = {0};

    buf_add_u64(&b, 0);
    buf_add_c(&b, ' ');
    buf_add_u64(&b, UINT64_MAX);
    buf_add_c(&b, ' ');
    buf_add_i64(&b, INT64_MIN);
    buf_add_c(&b, ' ');
    buf_add_i64(&b, -10);
    cr_assert(str_eq_c(buf_str(&b), "0 18446744073709551615 -9223372036854775808 -10"));
    buf_done(&b);
}

/* A long one gets room at once, and keeps its bytes; a short one is left alone. */
Test(buf, roomy)
{
    struct buf b = {0};

    for (int i = 0; i < (2 << 20); i++)
        buf_add_c(&b, (char)i);
    buf_roomy(&b);
    cr_assert_eq(b.cap, 2 << 20);
    buf_add_c(&b, 0);
    buf_roomy(&b);
    cr_assert_geq(b.cap, 64 << 20);
    cr_assert_eq(b.len, (2 << 20) + 1);
    for (int i = 0; i <= (2 << 20); i++)
        cr_assert_eq(b.p[i], (char)i);
    buf_done(&b);
}
