#include "worker/ledger/delivery.h"

#include "costs.h"
#include "testing.h"
#include "worker/session/store/session.h"

static const struct str NO_KEY = {0};

/* Returns the oldest undelivered call that a request without a key may repeat, or -1. */
static int64_t missing(const struct deliveries *d, struct str id, const uint64_t hash[2])
{
    const struct delivery *v = deliveries_missing(d, id, hash, NO_KEY, NULL);

    return v ? (int64_t)delivery_call(v) : -1;
}

/* Returns all calls that a request with this key may repeat, as digits in order. */
static const char *meant(const struct deliveries *d, struct str id, const uint64_t hash[2],
                         const char *key)
{
    static char ret[32];
    const struct delivery *v = NULL;
    size_t n = 0;

    while ((v = deliveries_missing(d, id, hash, str_cstr(key), v)) && n + 1 < sizeof(ret))
        ret[n++] = (char)('0' + delivery_call(v));
    ret[n] = '\0';
    return ret;
}

static const struct str A = STR_LIT("w0-0123456789abcdef0123456789abcdef"),
                        B = STR_LIT("w1-0123456789abcdef0123456789abcdef");

TEST(delivery, remembers_each_call_until_delivered)
{
    struct deliveries d = {0};
    const uint64_t one[2] = {1, 2};
    const uint64_t two[2] = {1, 3};

    for (uint64_t i = 0; i < 4; i++)
        deliveries_open(&d, A, one, NO_KEY, i);
    cr_assert_eq(missing(&d, A, one), 0);
    cr_assert_eq(missing(&d, A, two), -1);
    cr_assert_eq(missing(&d, B, one), -1);
    deliveries_open(&d, A, one, NO_KEY, 2); /* known */
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
        deliveries_open(&before, A, hash, NO_KEY, i);
        deliveries_open(&after, A, hash, NO_KEY, i);
        deliveries_open(&before, B, hash, NO_KEY, i);
    }
    deliveries_close(&before, A, hash, 0);
    deliveries_close(&before, B, hash, 1);
    deliveries_write_note(&before, 0, &note);
    deliveries_write_note(&before, UINT32_MAX, &others);
    cr_assert_eq(note.len, 8);
    cr_assert_eq(others.len, 8);
    deliveries_replay(&after, buf_str(&others)); /* empty */
    cr_assert_eq(after.n, 2);
    deliveries_replay(&after, buf_str(&note));
    cr_assert_eq(missing(&after, A, hash), 1);
    buf_done(&note);
    buf_done(&others);
    deliveries_done(&before);
    deliveries_done(&after);
}

/* Writes the note of a session as its record, and replays that. */
static void replay_record(void *after, struct str id, struct str note)
{
    struct buf record = {0};
    struct str briefs;

    session_delivered_record(id, note, 0, &record);
    cr_assert(session_record_delivered(buf_str(&record), &briefs));
    deliveries_replay(after, briefs);
    buf_done(&record);
}

TEST(delivery, in_a_fleet_one_record_names_all_answers_of_a_session)
{
    struct deliveries before = {.as_records = true}, after = {0};
    const uint64_t hash[2] = {5, 6};

    for (uint64_t i = 0; i < 4; i++) {
        deliveries_open(&before, i < 3 ? A : B, hash, NO_KEY, i);
        deliveries_open(&after, i < 3 ? A : B, hash, NO_KEY, i);
        if (i != 1)
            deliveries_close(&before, i < 3 ? A : B, hash, i);
    }
    cr_assert_eq(before.arrived.n, 2);
    deliveries_take_notes(&before, replay_record, &after);
    cr_assert_eq(before.arrived.n, 0);
    cr_assert_eq(after.n, 1);
    cr_assert_eq(missing(&after, A, hash), 1);
    deliveries_done(&before);
    deliveries_done(&after);
}

TEST(delivery, a_request_means_those_of_its_key_then_those_without)
{
    static const char *const keys[] = {"a", NULL, "b", "a", NULL, "c"};
    const uint64_t one[2] = {1, 2}, two[2] = {1, 3};
    struct deliveries d = {0};

    for (uint64_t i = 0; i < ARRAY_LEN(keys); i++)
        deliveries_open(&d, A, one, str_cstr(keys[i]), i);
    deliveries_open(&d, A, two, STR("a"), 7);
    deliveries_open(&d, B, one, STR("a"), 8);
    cr_expect_str_eq(meant(&d, A, one, NULL), "012345");
    cr_expect_str_eq(meant(&d, A, one, "a"), "0314");
    cr_expect_str_eq(meant(&d, A, one, "b"), "214");
    cr_expect_str_eq(meant(&d, A, one, "another"), "14");
    cr_expect_str_eq(meant(&d, A, two, "a"), "7");
    cr_expect_str_eq(meant(&d, A, two, "b"), "");
    deliveries_close(&d, A, one, 3);
    deliveries_close(&d, A, one, 1);
    cr_expect_str_eq(meant(&d, A, one, "a"), "04");
    deliveries_close(&d, A, one, 0);
    deliveries_close(&d, A, one, 4);
    cr_expect_str_eq(meant(&d, A, one, "a"), "");
    cr_expect_str_eq(meant(&d, A, one, NULL), "25");
    deliveries_done(&d);
}

/* Measures n calls with one body, each with its own key, none of which is delivered. A request with
 * the same body and a different key follows each. Then all are delivered. */
static struct cost open_all(const void *ctx, uint32_t n)
{
    const uint64_t hash[2] = {1, 2};
    struct deliveries d = {0};
    struct cost ret = {0};
    double start = cost_now_s();
    size_t wrong = 0;
    char key[24];

    (void)ctx;
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "key %u", i);
        deliveries_open(&d, A, hash, str_cstr(key), i);
        wrong += deliveries_missing(&d, A, hash, STR("another"), NULL) != NULL;
    }
    for (uint32_t i = n; i-- > 0;)
        deliveries_close(&d, A, hash, i);
    ret.seconds = cost_now_s() - start;
    cr_assert_eq(wrong + d.n, 0);
    deliveries_done(&d);
    return ret;
}

TEST(delivery, those_of_other_keys_cost_nothing)
{
    expect_linear("deliveries with keys", open_all, NULL, 1000);
}

TEST(delivery, is_bounded)
{
    struct deliveries d = {0};

    for (uint64_t i = 0; i < DELIVERY_MAX + 10; i++) {
        const uint64_t hash[2] = {i, i};

        deliveries_open(&d, A, hash, NO_KEY, i);
    }
    cr_assert_eq(d.n, DELIVERY_MAX);
    cr_assert_eq(missing(&d, A, (const uint64_t[2]){0, 0}), -1);
    deliveries_done(&d);
}

/* The session that fills the table loses its own entries. */
TEST(delivery, a_full_table_takes_from_the_session_that_has_most)
{
    static const struct str many = STR_LIT("w0-00000000000000000000000000000000");
    struct deliveries d = {0};
    uint64_t n = 0;

    deliveries_open(&d, A, (const uint64_t[2]){1, 1}, NO_KEY, 1);
    for (; d.n < DELIVERY_MAX; n++)
        deliveries_open(&d, many, (const uint64_t[2]){n, n}, NO_KEY, n);
    for (uint64_t i = 0; i < 10; i++)
        deliveries_open(&d, B, (const uint64_t[2]){i, i}, NO_KEY, i);
    for (uint64_t i = 0; i < 1000; i++, n++)
        deliveries_open(&d, many, (const uint64_t[2]){n, n}, NO_KEY, n);
    cr_expect_eq(d.n, DELIVERY_MAX);
    cr_expect_eq(missing(&d, A, (const uint64_t[2]){1, 1}), 1);
    for (uint64_t i = 0; i < 10; i++)
        cr_expect_eq(missing(&d, B, (const uint64_t[2]){i, i}), (int64_t)i);
    for (uint64_t i = 0; i < n; i++)
        cr_expect_eq(missing(&d, many, (const uint64_t[2]){i, i}), i < 1010 ? -1 : (int64_t)i);
    deliveries_done(&d);
}

/* Also if each session has few entries. */
TEST(delivery, a_full_table_of_small_sessions_takes_from_those_with_more)
{
    const uint64_t hash[2] = {1, 1};
    struct deliveries d = {0};
    char id[40];

    deliveries_open(&d, A, hash, NO_KEY, 1);
    for (unsigned i = 0; d.n < DELIVERY_MAX; i++) {
        (void)snprintf(id, sizeof(id), "w0-%032x", i / 4);
        deliveries_open(&d, str_cstr(id), hash, NO_KEY, i);
    }
    for (uint64_t i = 0; i < 1000; i++)
        deliveries_open(&d, B, (const uint64_t[2]){i, i}, NO_KEY, i);
    cr_expect_eq(d.n, DELIVERY_MAX);
    cr_expect_eq(missing(&d, A, hash), 1, "whose only one was the oldest of all");
    deliveries_done(&d);
}
