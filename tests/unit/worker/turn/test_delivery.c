#include "worker/turn/delivery.h"

#include "testing.h"

TEST(delivery, remembers_until_delivered)
{
    struct deliveries d = {0};
    const uint64_t one[2] = {1, 2};
    const uint64_t two[2] = {1, 3};

    deliveries_open(&d, STR("w0-a"), one);
    cr_assert(deliveries_missing(&d, STR("w0-a"), one));
    cr_assert_not(deliveries_missing(&d, STR("w0-a"), two));
    cr_assert_not(deliveries_missing(&d, STR("w0-b"), one));
    deliveries_open(&d, STR("w0-a"), one);
    deliveries_close(&d, STR("w0-a"), one);
    cr_assert_not(deliveries_missing(&d, STR("w0-a"), one));
    deliveries_done(&d);
}

TEST(delivery, notes_carry_over_a_restart)
{
    struct deliveries before = {0};
    struct deliveries after = {0};
    struct buf note = {0};
    const uint64_t arrived[2] = {5, 6};
    const uint64_t lost[2] = {7, 8};

    deliveries_open(&before, STR("w0-a"), arrived);
    deliveries_open(&before, STR("w0-a"), lost);
    deliveries_close(&before, STR("w0-a"), arrived);
    deliveries_take_note(&before, &note);
    deliveries_open(&after, STR("w0-a"), arrived);
    deliveries_open(&after, STR("w0-a"), lost);
    deliveries_replay_note(&after, buf_str(&note));
    cr_assert_not(deliveries_missing(&after, STR("w0-a"), arrived));
    cr_assert(deliveries_missing(&after, STR("w0-a"), lost));
    buf_done(&note);
    deliveries_done(&before);
    deliveries_done(&after);
}

TEST(delivery, is_bounded)
{
    struct deliveries d = {0};

    for (uint64_t i = 0; i < DELIVERY_MAX + 10; i++) {
        const uint64_t hash[2] = {i, i};

        deliveries_open(&d, STR("w0-a"), hash);
    }
    cr_assert_eq(d.n, DELIVERY_MAX);
    cr_assert_not(deliveries_missing(&d, STR("w0-a"), (const uint64_t[2]){0, 0}));
    deliveries_done(&d);
}
