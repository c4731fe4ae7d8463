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
