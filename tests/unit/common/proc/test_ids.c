#include "common/proc/ids.h"

#include "testing.h"

TEST(ids, made_ids_parse_back)
{
    static const uint32_t indexes[] = {0, 7, 10, 999999};
    struct err e;
    struct ids *ids = ids_new(&e);
    char a[ID_TEXT_MAX], b[ID_TEXT_MAX];

    cr_assert_not_null(ids);
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++) {
        uint32_t index = 1;
        size_t n = ids_session(ids, indexes[i], a);

        cr_assert_eq(n, strlen(a));
        cr_assert_eq(ids_parse(str_of(a, n), &index), 0);
        cr_assert_eq(index, indexes[i]);
        ids_session(ids, indexes[i], b);
        cr_assert_str_neq(a, b);
    }
    ids_free(ids);
}

/* Short requests are served from a buffer of random bytes. No byte is used twice. */
TEST(ids, random_bytes_never_come_again)
{
    enum { N = 600, LONG = 200 };

    struct err e;
    struct ids *ids = ids_new(&e);
    uint64_t made[N], of_long[LONG / 8];

    for (size_t i = 0; i < N; i++)
        ids_random(ids, &made[i], sizeof(made[i]));
    ids_random(ids, of_long, sizeof(of_long));
    for (size_t i = 0; i < N; i++) {
        for (size_t k = i + 1; k < N; k++)
            cr_expect_neq(made[i], made[k]);
        for (size_t k = 0; k < ARRAY_LEN(of_long); k++)
            cr_expect_neq(made[i], of_long[k]);
    }
    ids_free(ids);
}

TEST(ids, other_texts_are_refused)
{
    static const char *const bad[] = {
        "",
        "w",
        "w-0123456789abcdef0123456789abcdef",
        "w00-0123456789abcdef0123456789abcdef",
        "w01-0123456789abcdef0123456789abcdef",
        "w1000000-0123456789abcdef0123456789abcdef",
        "w+1-0123456789abcdef0123456789abcdef",
        "W1-0123456789abcdef0123456789abcdef",
        "w1-0123456789ABCDEF0123456789abcdef",
        "w1-0123456789abcdef0123456789abcde",
        "w1-0123456789abcdef0123456789abcdef0",
        "w1_0123456789abcdef0123456789abcdef",
        "w1-0123456789abcdef0123456789abcdeg",
    };
    uint32_t index = 77;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(ids_parse(str_cstr(bad[i]), &index), -1, "%s", bad[i]);
    cr_assert_eq(index, 77);
}

TEST(ids, what_is_wrong_with_a_text)
{
    static const struct {
        const char *text, *fault;
    } cases[] = {
        {"w1-0123456789abcdef0123456789abcdef", NULL},
        {"", "it is empty"},
        {"w1%2D0123456789abcdef0123456789abcdef", "percent-encoded"},
        {"W1-0123456789ABCDEF0123456789ABCDEF", "upper-case"},
        {"w1-0123456789abcdef0123456789abcdeF", "upper-case"},
        {"0123456789abcdef0123456789abcdef", "w<index>- is missing"},
        {"nonsense", "does not begin with w<index>-"},
        {"w1", "does not begin with w<index>-"},
        {"w1-0123456789abcdef", "it is cut"},
        {"w1-", "it is cut"},
        {"w1-0123456789abcdef0123456789abcdef0", "something follows"},
        {"w1-0123456789abcdef0123456789abcdef.", "something follows"},
        {"w1-0123456789abcdef0123456789abcdeg", "other characters"},
        {"w01-0123456789abcdef0123456789abcdef", "its index"},
        {"w1000000-0123456789abcdef0123456789abcdef", "its index"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = ids_fault(str_cstr(cases[i].text));

        cr_expect(cases[i].fault ? got && strstr(got, cases[i].fault) : !got, "%s: %s",
                  cases[i].text, got ? got : "nothing");
    }
}
