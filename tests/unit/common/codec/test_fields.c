#include "common/codec/fields.h"
#include "common/codec/json.h"

#include "testing.h"

static struct arena arena;

static struct field_reader reader(const char *text, const char *where, struct err *e)
{
    struct field_reader f = {.where = where, .e = e};

    *e = (struct err){0};
    cr_assert_eq(json_parse(&arena, str_cstr(text), &f.body, e), 0, "%s", e->text);
    return f;
}

TEST(fields, absent_and_null_keep_what_there_was)
{
    struct err e;
    struct field_reader f = reader("{\"n\": null, \"m\": 7}", "", &e);
    struct field_reader g = reader("{\"n\": 9}", "", &e);
    int64_t n = 5;
    bool b = true;

    cr_assert_eq(fields_integer(&f, "n", 0, 10, &n), 0);
    cr_assert_eq(fields_bool(&f, "absent", &b), 0);
    cr_assert(n == 5 && b);
    g.defaults = f.body; /* values that the body lacks */
    cr_assert_eq(fields_integer(&g, "m", 0, 10, &n), 0);
    cr_assert_eq(n, 7);
    arena_done(&arena);
}

TEST(fields, an_error_has_field_value_and_limit)
{
    struct err e;
    struct field_reader f = reader("{\"n\": 11, \"s\": [1]}", "groups[3].", &e);
    struct str s = {0};
    int64_t n = 0;

    cr_assert_eq(fields_integer(&f, "n", 0, 10, &n), -1);
    cr_assert_str_eq(e.text, "groups[3].n must be an integer from 0 to 10, not 11");
    cr_assert_str_eq(e.param, "groups[3].n");
    cr_assert_eq(fields_text(&f, "s", 9, &s), -1);
    cr_assert_str_eq(e.text, "groups[3].s must be a string of at most 9 bytes, not a list");
    arena_done(&arena);
}

/* The 48th byte is within a character of three bytes, after 47 letters. */
TEST(fields, values_are_cut_between_characters)
{
    struct err e;
    struct field_reader f =
        reader("{\"n\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xe2\x82\xac\"}", "", &e);
    int64_t n = 0;

    cr_assert_eq(fields_integer(&f, "n", 0, 10, &n), -1);
    cr_assert_str_eq(e.text, "n must be an integer from 0 to 10, not "
                             "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\"");
    arena_done(&arena);
}

TEST(fields, an_unknown_one_names_the_nearest)
{
    static const char *const known[] = {"runner", "input"};
    struct err e;
    struct field_reader f = reader("{\"input\": 1, \"runer\": 2}", "groups[0].", &e);

    cr_assert_eq(fields_known(&f, "", known, 2), -1);
    cr_assert_str_eq(e.text, "unknown body field \"groups[0].runer\" (did you mean \"runner\"?). "
                             "Known: runner, input");
    f = reader("{\"zzzzzz\": 2}", "", &e);
    cr_assert_eq(fields_known(&f, "on", known, 2), -1);
    cr_assert_str_eq(e.text, "unknown body field \"on.zzzzzz\". Known: runner, input");
    cr_assert_str_eq(e.param, "on.zzzzzz");
    arena_done(&arena);
}
