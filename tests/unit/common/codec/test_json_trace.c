#include "common/codec/json_trace.h"

#include <stdio.h>

#include "testing.h"

struct reading {
    struct arena arena;
    struct json_trace trace;
    struct err err;
    const struct json *value;
    int rc;
};

static void read_text(struct reading *r, const char *text, const struct json_known *known)
{
    *r = (struct reading){.trace.key = STR("messages")};
    r->rc = json_parse_traced(&r->arena, str_cstr(text + (known ? known->bytes : 0)), known,
                              &r->trace, &r->value, &r->err);
}

static void done(struct reading *r)
{
    json_trace_done(&r->trace);
    arena_done(&r->arena);
}

/* Returns the state after the n-th item of a parsed text. */
static struct json_known known_at(const struct reading *r, size_t n)
{
    const struct json_mark *m = &r->trace.marks.at[n - 1];

    cr_assert_geq(r->trace.marks.n, n);
    return (struct json_known){
        .bytes = m->end,
        .used_bytes = m->used_bytes,
        .escaped_at = r->trace.escaped_at < m->end ? r->trace.escaped_at : SIZE_MAX,
        .surrogate_at = r->trace.surrogate_at <= m->end ? r->trace.surrogate_at : SIZE_MAX,
        .list_key = r->trace.list_key,
        .members = r->trace.members.at,
        .n_members = r->trace.members.n,
        .items = json_get(r->value, "messages")->items,
        .n_items = n};
}

/* Checks that `second`, which begins like `first` up to its n-th item, has the same result if it is
 * parsed from there. */
static void same(const char *first, size_t n, const char *second)
{
    struct reading one, whole, on;
    struct json_known known;

    read_text(&one, first, NULL);
    cr_assert_eq(one.rc, 0, "%s", one.err.text);
    known = known_at(&one, n);
    cr_assert_eq(memcmp(first, second, known.bytes), 0, "the test's texts differ: %s", second);
    read_text(&whole, second, NULL);
    read_text(&on, second, &known);
    cr_assert_eq(whole.rc, on.rc, "%s: %s / %s", second, whole.err.text, on.err.text);
    cr_assert_str_eq(whole.err.text, on.err.text);
    cr_assert_eq(whole.trace.twice, on.trace.twice);
    if (whole.rc == 0) {
        cr_assert(json_equal(whole.value, on.value), "%s", second);
        cr_assert_eq(whole.arena.used_bytes, on.arena.used_bytes, "%s", second);
    }
    done(&one);
    done(&whole);
    done(&on);
}

#define HEAD "{\"a\": \"x\\ty\", \"messages\": [{\"r\": \"u\"} , {\"r\": \"\\u00e9\"}"

TEST(json_trace, goes_on_as_if_it_had_read_all)
{
    static const char *const ends[] = {"]}", ", {\"r\": \"\\n\"}], \"b\": [1, {}]}",
                                       "], \"messages\": []}", "], \"a\": 2}",
                                       ", 5], \"b\": \"\\\\\"}",
                                       /* errors, and their offsets */
                                       "", ", ", ",]}", "]", "}", "1]}", ", {\"r\": \"\\x\"}]}",
                                       "]} x", "], \"b\": \"\xff\"}", ", {\"r\": \"\x01\"}]}"};
    char second[256];

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        for (size_t n = 1; n <= 2; n++) {
            (void)snprintf(second, sizeof(second), "%s%s", HEAD, ends[i]);
            same(HEAD ", {\"r\": 3}], \"b\": 1}", n, second);
        }
}

TEST(json_trace, marks_objects_alone)
{
    struct reading r;

    read_text(&r, "{\"messages\": [{\"a\": 1}, {\"a\": [{}]}, 7, {\"a\": 1}]}", NULL);
    cr_assert_eq(r.trace.marks.n, 2); /* a number may continue in the next text */
    cr_assert_eq(r.trace.marks.at[1].end, sizeof("{\"messages\": [{\"a\": 1}, {\"a\": [{}]}") - 1);
    done(&r);
    read_text(&r, "{\"messages\": [{\"a\": 1}], \"messages\": [{\"b\": 1}]}", NULL);
    cr_assert(r.rc == 0 && r.trace.twice && r.trace.marks.n == 0);
    done(&r);
    read_text(&r, "{\"x\": {\"messages\": [{\"a\": 1}]}}", NULL);
    cr_assert(r.rc == 0 && !r.trace.found && r.trace.marks.n == 0);
    done(&r);
}
