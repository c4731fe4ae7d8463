#include "testing.h"

#include "common/codec/query.h"

static void same(struct arena *a, const char *query, const char *name, const char *want)
{
    struct str got = query_get(a, str_cstr(query), name);

    if (want)
        cr_expect(got.p && str_eq_c(got, want), "%s of %s", name, query);
    else
        cr_expect(!got.p, "%s of %s", name, query);
}

TEST(query, gives_decoded_values_by_name)
{
    struct arena a = {0};

    same(&a, "a=1&b=2", "b", "2");
    same(&a, "a=1&a=2", "a", "1");
    same(&a, "a", "a", "");
    same(&a, "a=", "a", "");
    same(&a, "", "a", NULL);
    same(&a, "ab=1", "a", NULL);
    same(&a, "&&a=x%20y+z&", "a", "x y z");
    same(&a, "a=%4", "a", "%4");
    same(&a, "a=100%", "a", "100%");
    same(&a, "a=%zz%41", "a", "%zzA");
    same(&a, "a=b=c", "a", "b=c");
    arena_done(&a);
}

TEST(query, splits_without_decoding)
{
    struct str left = STR("&a%20=b%3d&c&&=d"), name, value;

    cr_assert(query_split(&left, &name, &value));
    cr_expect(str_eq_c(name, "a%20") && str_eq_c(value, "b%3d"));
    cr_assert(query_split(&left, &name, &value));
    cr_expect(str_eq_c(name, "c") && value.len == 0);
    cr_assert(query_split(&left, &name, &value));
    cr_expect(name.len == 0 && str_eq_c(value, "d"));
    cr_assert(!query_split(&left, &name, &value));
}
