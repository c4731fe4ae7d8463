#include "testing.h"
#include <malloc.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/vec.h"

TEST(buf, formats_into_the_room_and_beyond_it)
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
            buf_done(&b); /* also from the first allocation on */
    }
    buf_done(&b);
}

TEST(buf, adds_numbers)
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

/* A long buffer keeps its bytes, and its address while its address space suffices. Then it moves
 * once. */
TEST(buf, long_ones)
{
    enum { LONG = 2 << 20, FAR = 70 << 20 };
    struct buf b = {0};
    const char *at;

    for (int i = 0; i < LONG; i++)
        buf_add_c(&b, (char)i);
    cr_assert_lt(malloc_usable_size(b.p), LONG * 2,
                 "heap memory, whose pages are kept for the next");
    buf_add_c(&b, (char)LONG);
    cr_assert_eq(b.cap, LONG * 2);
    at = b.p;
    cr_assert_eq((uintptr_t)at % LONG, 0);
    (void)buf_reserve(&b, LONG * 7);
    cr_assert_eq(b.p, at);
    cr_assert_geq(b.cap, LONG * 8);
    (void)buf_reserve(&b, FAR);
    memset(b.p + b.len, 7, FAR);
    for (int i = 0; i < LONG; i++)
        cr_assert_eq(b.p[i], (char)i);
    buf_done(&b);
}

TEST(buf, up_to_a_limit)
{
    struct buf b = {0};

    buf_add_up_to(&b, STR("abc"), 5);
    buf_add_up_to(&b, STR("def"), 5);
    cr_assert(str_eq_c(buf_str(&b), "abcde"));
    buf_add_up_to(&b, STR("g"), 3);
    cr_assert_eq(b.len, 5);
    buf_done(&b);
}

/* Items after n are kept, too, because a caller may have written them into reserved memory. */
TEST(buf, long_vectors)
{
    VEC(uint32_t) v = {0};
    const size_t short_n = 4096;

    vec_reserve(&v, short_n);
    for (uint32_t i = 0; i < v.cap; i++)
        v.at[i] = i;
    vec_reserve(&v, 4 << 20);
    cr_assert_geq(v.cap, 4 << 20);
    for (uint32_t i = 0; i < short_n; i++)
        cr_assert_eq(v.at[i], i);
    memset(v.at, 1, v.cap * sizeof(*v.at));
    vec_done(&v);
}
