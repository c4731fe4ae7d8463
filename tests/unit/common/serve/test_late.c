#include "common/serve/server_internal.h"
#include "testing.h"

enum { N = 6 };

static struct exchange all[N];

/* Returns the owner: the first four exchanges have the same one, each other has its own. */
static struct str owner(const struct exchange *x)
{
    static const char *const names[N] = {"a", "a", "a", "a", "b", "c"};

    return str_cstr(names[x - all]);
}

/* Checks the order of the exchanges by their numbers. */
static void check(struct server *s, const char *expected)
{
    struct exchange *x;
    char got[N + 1] = "";
    size_t n = 0;

    while ((x = deferred_next(s)))
        got[n++] = (char)('0' + (x - all));
    got[n] = 0;
    cr_assert_str_eq(got, expected);
}

TEST(late, each_owner_has_one_begun_after_the_other)
{
    struct server s = {.opt = {.owner = owner}};

    for (int i = 0; i < N; i++)
        deferred_add(&s, &all[i]);
    check(&s, "045123");
    for (int i = 0; i < N; i++)
        deferred_add(&s, &all[i]);
    list_remove(&all[0].late); /* its client has left */
    list_remove(&all[4].late);
    check(&s, "1523");
    deferred_done(&s);
}

TEST(late, without_owners_they_come_in_order)
{
    struct server s = {0};

    for (int i = 0; i < N; i++)
        deferred_add(&s, &all[i]);
    check(&s, "012345");
    deferred_add(&s, &all[1]);
    deferred_done(&s);
    cr_assert(!list_holds(&all[1].late));
}
