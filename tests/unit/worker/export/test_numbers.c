#include <math.h>
#include <stdlib.h>

#include "testing.h"
#include "worker/export/build/numbers.h"

static void check(float v, const char *want)
{
    struct buf b = {0};

    numbers_f32(&b, &v, 1);
    buf_add_c(&b, 0);
    if (want)
        cr_expect_str_eq(b.p, want);
    cr_expect_eq((float)strtod(b.p, NULL), v, "%s is not %a", b.p, (double)v);
    buf_done(&b);
}

TEST(numbers, floats_read_back_as_the_same_float)
{
    unsigned seed = 20250711;

    check(0, "0.0");
    check(-0.0F, "-0.0");
    check(-0.56F, "-0.56");
    check(0.1F, "0.1");
    check(1, "1.0");
    check(-12.5F, "-12.5");
    check(16777216, NULL);
    check(-1.1920929e-7F, NULL);
    check(3.4028235e38F, NULL);
    check(1.4e-45F, NULL);
    check(99999.99F, NULL);
    for (int i = 0; i < 200000; i++) {
        union {
            unsigned u;
            float f;
        } x;

        seed = seed * 1664525 + 1013904223;
        x.u = seed;
        if (isfinite(x.f))
            check(x.f, NULL);
        check(-20.0F * (float)(seed >> 8) / 16777216.0F, NULL);
    }
}

TEST(numbers, what_is_not_finite_is_null)
{
    struct buf b = {0};
    const float v[] = {NAN, INFINITY};

    numbers_f32(&b, v, 2);
    cr_expect(str_eq_c(buf_str(&b), "null,null"));
    buf_done(&b);
}

TEST(numbers, integers_of_any_size)
{
    struct buf b = {0};
    const int64_t v[] = {0, -1, INT64_MAX, INT64_MIN};

    numbers_i64(&b, v, 4);
    cr_expect(str_eq_c(buf_str(&b), "0,-1,9223372036854775807,-9223372036854775808"));
    buf_done(&b);
}
