#include "common/serve/fading.h"

#include "common/base/buf.h"
#include "testing.h"

enum { LONG = 9 << 20 };

static struct buf filled(size_t n)
{
    struct buf b = {0};

    memset(buf_reserve(&b, n), 'x', n);
    b.len = n;
    return b;
}

TEST(fading, long_ones_go_a_piece_a_turn_and_short_ones_at_once)
{
    struct err e;
    struct loop *l = loop_new(&e);
    struct fading f;
    struct buf few = filled(100), many = filled(LONG), more = filled(LONG);
    size_t had = many.cap + more.cap;
    int turns = 0;

    fading_init(&f, l);
    fading_take(&f, &few);
    cr_assert(f.bytes == 0 && few.p == NULL);
    fading_take(&f, &many);
    fading_take(&f, &more);
    cr_assert(f.bytes == had && many.p == NULL && more.cap == 0);
    for (; f.bytes > 0; turns++) {
        size_t before = f.bytes;

        loop_poll(l, 0);
        cr_assert(f.bytes < before && before - f.bytes <= 1 << 20);
    }
    cr_assert_geq(turns, 18);
    many = filled(LONG);
    fading_take(&f, &many);
    fading_done(&f);
    cr_assert_eq(f.bytes, 0);
    loop_free(l);
}
