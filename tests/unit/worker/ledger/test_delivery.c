#include "worker/ledger/delivery.h"

#include "testing.h"

/* The oldest missing call, or -1. */
static int64_t missing(const struct deliveries *d, struct str id, const uint64_t hash[2])
{
    const struct delivery *at = NULL;
    uint64_t call;

    return deliveries_missing(d, id, hash, &at, &call) ? (int64_t)call : -1;
}

static const struct str A = STR_LIT("w0-0123456789abcdef0123456789abcdef"),
                        B = STR_LIT("w1-0123456789abcdef0123456789abcdef");

TEST(delivery, remembers_each_call_until_delivered)
{
    struct deliveries d = {0};
    const uint64_t one[2] = {1, 2};
    const uint64_t two[2] = {1, 3};

    for (uint64_t i = 0; i < 4; i++)
        deliveries_open(&d, A, one, i);
    cr_assert_eq(missing(&d, A, one), 0);
    cr_assert_eq(missing(&d, A, two), -1);
    cr_assert_eq(missing(&d, B, one), -1);
    deliveries_open(&d, A, one, 2); /* known */
    deliveries_close(&d, A, one, 2);
    deliveries_close(&d, A, one, 0);
    deliveries_close(&d, A, one, 7);
    cr_assert_eq(missing(&d, A, one), 1);
    deliveries_close(&d, A, one, 1);
    cr_assert_eq(missing(&d, A, one), 3);
    deliveries_close(&d, A, one, 3);
    cr_assert_eq(missing(&d, A, one), -1);
    cr_assert_eq(d.n, 0);
    deliveries_done(&d);
}

TEST(delivery, notes_carry_over_a_restart)
{
    struct deliveries before = {0}, after = {0};
    struct buf note = {0}, others = {0};
    const uint64_t hash[2] = {5, 6};

    for (uint64_t i = 0; i < 2; i++) {
        deliveries_open(&before, A, hash, i);
        deliveries_open(&after, A, hash, i);
        deliveries_open(&before, B, hash, i);
    }
    deliveries_close(&before, A, hash, 0);
    deliveries_close(&before, B, hash, 1);
    deliveries_take_note(&before, 0, &note);
    deliveries_take_note(&before, UINT32_MAX, &others);
    cr_assert_eq(note.len, 8);
    cr_assert_eq(others.len, 8);
    deliveries_replay_note(&after, buf_str(&others)); /* nothing here */
    cr_assert_eq(after.n, 2);
    deliveries_replay_note(&after, buf_str(&note));
    cr_assert_eq(missing(&after, A, hash), 1);
    buf_done(&note);
    buf_done(&others);
    deliveries_done(&before);
    deliveries_done(&after);
}

TEST(delivery, is_bounded)
{
    struct deliveries d = {0};

    for (uint64_t i = 0; i < DELIVERY_MAX + 10; i++) {
        const uint64_t hash[2] = {i, i};

        deliveries_open(&d, A, hash, i);
    }
    cr_assert_eq(d.n, DELIVERY_MAX);
    cr_assert_eq(missing(&d, A, (const uint64_t[2]){0, 0}), -1);
    deliveries_done(&d);
}
