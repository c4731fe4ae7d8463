/* Objects in records as members of texts: they come back, and torn ones are refused. */
#include "worker/session/member_record.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "common/codec/json_long.h"
#include "testing.h"

/* An object of a short, an empty and a long value. */
static const struct json *sample(struct arena *a)
{
    struct buf text = {0};
    const struct json *v = NULL;
    struct err e;

    buf_puts(&text, "{\"uid\": \"t-1\", \"\": {}, \"long\": [");
    for (int i = 0; i < 3000; i++)
        buf_puts(&text, "0.50, ");
    buf_puts(&text, "null], \"n\": 2.50}");
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&text)), &v, &e), 0, "%s", e.text);
    buf_done(&text);
    return json_keep_long(a, v);
}

/* The text that a record has for it. */
static struct str recorded(struct buf *b, const struct json *v)
{
    struct record_in r;
    struct str text;

    member_record_put(b, v);
    r = record_in_of(buf_str(b));
    text = record_str(&r);
    cr_assert(!r.bad && r.p == r.end);
    return text;
}

TEST(member_record, an_object_comes_back)
{
    struct arena a = {0};
    struct buf b = {0}, was = {0}, is = {0};
    const struct json *v = sample(&a), *read = NULL;
    struct str text = recorded(&b, v);
    struct err e = {0};

    cr_assert_eq(member_record_read(text, &a, &read, &e), 0, "%s", e.text);
    cr_assert_eq(member_record_check(text, &e), 0, "%s", e.text);
    json_write(&was, v);
    json_write(&is, read);
    cr_assert(str_eq(buf_str(&was), buf_str(&is)));
    cr_assert_eq(json_get(read, "long")->kind, JSON_RAW);
    cr_assert(str_eq_c(json_string(json_get(read, "uid")), "t-1"));
    cr_assert(str_eq_c(json_text(json_get(read, "n")), "2.50"));
    buf_done(&b);
    buf_done(&was);
    buf_done(&is);
    arena_done(&a);
}

TEST(member_record, torn_ones_are_refused)
{
    struct arena a = {0};
    struct buf b = {0};
    struct str text = recorded(&b, sample(&a));
    const struct json *read;
    struct err e;

    for (size_t n = 0; n < text.len; n += n < 64 ? 1 : 997) {
        struct arena tmp = {0};
        char *copy = arena_cstr(&tmp, str_sub(text, 0, n)); /* so that ASan sees a read past it */

        cr_assert_eq(member_record_read(str_of(copy, n), &tmp, &read, &e), -1, "%zu bytes", n);
        cr_assert_eq(member_record_check(str_of(copy, n), &e), -1, "%zu bytes", n);
        arena_done(&tmp);
    }
    cr_assert_eq(member_record_read((struct str){0}, &a, &read, &e), -1);
    buf_done(&b);
    arena_done(&a);
}

static int checked(const char *bytes, size_t n)
{
    struct err e;

    return member_record_check(str_of(bytes, n), &e);
}

/* Each is n, then keys and values with their lengths + 1. */
TEST(member_record, what_comes_from_elsewhere_is_held_against_ours)
{
    cr_assert_eq(checked("\1\2a\2"
                         "1",
                         5),
                 0);
    cr_assert_eq(checked("\1\2a\2"
                         "1x",
                         6),
                 -1); /* more behind it */
    cr_assert_eq(checked("\2\2a\2"
                         "1\2a\2"
                         "2",
                         9),
                 -1); /* a key twice */
    cr_assert_eq(checked("\2\2a\2"
                         "1\2b\2"
                         "2",
                         9),
                 0);
    cr_assert_eq(checked("\1\2\377\2"
                         "1",
                         5),
                 -1); /* no UTF-8 */
    cr_assert_eq(checked("\1\2a\3[,", 6), -1);
    cr_assert_eq(checked("\1\2a\1", 4), -1);             /* an empty value */
    cr_assert_eq(checked("\1\2a\0", 4), -1);             /* an absent one */
    cr_assert_eq(checked("\377\377\377\377\17", 5), -1); /* more than there can be */
    cr_assert_eq(checked("\0", 1), 0);
}
