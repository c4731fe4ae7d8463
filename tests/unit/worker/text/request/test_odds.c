#include "worker/text/request/odds.h"

#include "common/base/buf.h"
#include "testing.h"

static const int32_t COUNTS[] = {1, 3}, IDS[] = {7, 8, 9, 10}, TOP_IDS[] = {7, 8, 9, -1};
static const float LOGPROBS[] = {0, -1, -2, -0.5f}, TOP_LOGPROBS[] = {-0.1f, -2, -0.3f, -9};

static struct odds sample(bool support, bool logprobs, uint32_t n_top)
{
    struct odds o = {.n = 2, .n_top = n_top, .top_ids = TOP_IDS, .top_logprobs = TOP_LOGPROBS};

    if (support)
        o.support = (struct odds_support){COUNTS, IDS, logprobs ? LOGPROBS : NULL, 4};
    return o;
}

/* Makes the stored form of odds, with the alternatives last. */
static struct buf block_of(const struct odds *o)
{
    struct buf b = {0};
    size_t tops = (size_t)o->n * o->n_top * sizeof(int32_t);
    int32_t *ids;
    float *logprobs;

    odds_begin(o, buf_reserve(&b, odds_bytes(o)), &ids, &logprobs);
    b.len = odds_bytes(o);
    memcpy(ids, o->top_ids, tops);
    memcpy(logprobs, o->top_logprobs, tops);
    return b;
}

TEST(odds, a_block_reads_back)
{
    for (unsigned i = 0; i < 8; i++) {
        struct odds o = sample(i & 1, i & 2, i & 4 ? 2 : 0), got;
        struct buf b = block_of(&o);

        cr_assert_eq(odds_read(buf_str(&b), 2, &got), 0);
        cr_assert_eq(got.n_top, o.n_top);
        if (o.n_top)
            cr_assert(memcmp(got.top_ids, TOP_IDS, sizeof(TOP_IDS)) == 0 &&
                      memcmp(got.top_logprobs, TOP_LOGPROBS, sizeof(TOP_LOGPROBS)) == 0);
        cr_assert_eq(got.support.counts != NULL, (i & 1) != 0);
        cr_assert_eq(got.support.logprobs != NULL, (i & 3) == 3);
        if (i & 1)
            cr_assert(got.support.n_ids == 4 &&
                      memcmp(got.support.counts, COUNTS, sizeof(COUNTS)) == 0 &&
                      memcmp(got.support.ids, IDS, sizeof(IDS)) == 0);
        buf_done(&b);
    }
}

/* A part of a block is not a block, nor is a block for a different number of tokens. */
TEST(odds, what_is_no_block)
{
    struct odds o = sample(true, true, 2), got;
    struct buf b = block_of(&o);

    for (size_t n = 0; n < b.len; n++)
        cr_assert_eq(odds_read(str_of(b.p, n), 2, &got), -1, "%zu", n);
    cr_assert_eq(odds_read(buf_str(&b), 1, &got), -1);
    cr_assert_eq(odds_read(buf_str(&b), 3, &got), -1);
    for (size_t i = 0; i < 3; i++) { /* of the head: impossible sizes, unknown flags */
        for (unsigned bit = 2; bit < 32; bit++) {
            b.p[i * 4 + bit / 8] ^= (char)(1u << bit % 8);
            cr_assert_eq(odds_read(buf_str(&b), 2, &got), -1, "word %zu bit %u", i, bit);
            b.p[i * 4 + bit / 8] ^= (char)(1u << bit % 8);
        }
    }
    buf_done(&b);
}

TEST(odds, counts_that_do_not_fit)
{
    static const int32_t wrong[][2] = {{0, 4}, {-1, 5}, {2, 3}, {INT32_MAX, INT32_MAX}};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct odds o = sample(true, false, 0), got;
        struct buf b;

        o.support.counts = wrong[i];
        b = block_of(&o);
        cr_assert_eq(odds_read(buf_str(&b), 2, &got), -1, "%zu", i);
        buf_done(&b);
    }
}
