/* Long values of an object are kept as their text. */
#include "common/codec/json_long.h"

#include "common/codec/json.h"
#include "testing.h"

/* {"k": VALUE, "n": 1}, where VALUE is `open`, then `item` until there are n of it, then `close`.
 */
static const struct json *object_of(struct arena *a, const char *open, const char *item, size_t n,
                                    const char *close)
{
    struct buf text = {0};
    const struct json *v = NULL;
    struct err e;

    buf_puts(&text, "{\"k\": ");
    buf_puts(&text, open);
    for (size_t i = 0; i < n; i++)
        buf_puts(&text, item);
    buf_puts(&text, close);
    buf_puts(&text, ", \"n\" : 1}");
    cr_assert_eq(json_parse(a, arena_str(a, buf_str(&text)), &v, &e), 0, "%s", e.text);
    buf_done(&text);
    return v;
}

static void expect(const char *open, const char *item, size_t n, const char *close, bool raw)
{
    struct arena a = {0};
    struct buf before = {0}, after = {0};
    const struct json *v = object_of(&a, open, item, n, close), *kept = json_keep_long(&a, v);

    json_write(&before, v);
    json_write(&after, kept);
    cr_assert(str_eq(buf_str(&before), buf_str(&after)));
    cr_assert_eq(json_has_raw(kept), raw);
    cr_assert_eq(kept == v, !raw);
    cr_assert_not(json_has_raw(v));
    if (raw) {
        const struct json *k = json_get(kept, "k");

        cr_assert_eq(k->kind, JSON_RAW);
        cr_assert(k->n > JSON_LONG_BYTES && json_text_bytes(k, SIZE_MAX) == k->n);
        cr_assert(json_equal(k, k) && !json_equal(k, json_get(v, "k")));
        cr_assert(!json_text(k).p && !json_string(k).p && !json_at(k, 0) && !json_get(k, "k"));
    }
    cr_assert(str_eq_c(json_text(json_get(kept, "n")), "1"));
    buf_done(&before);
    buf_done(&after);
    arena_done(&a);
}

TEST(json_long, lists_objects_and_strings_are_kept_as_text)
{
    expect("[", "1, ", 2500, "2.50]", true);
    expect("[[], ", "{\"a\" : [1e3]}, ", 1000, "null]", true);
    expect("{\"x\": [", "null, ", 5000, "false]}", true);
    expect("\"", "\\n\\ud800\303\251", 2000, "\"", true);
}

TEST(json_long, short_values_and_numbers_stay)
{
    expect("[", "1,", 1000, "2]", false);
    expect("\"", "x", JSON_LONG_BYTES, "\"", false);
    expect("\"", "x", JSON_LONG_BYTES + 1, "\"", true);
    expect("1", "0", 10000, "", false);
    expect("{}", "", 0, "", false);
}

TEST(json_long, what_is_no_object_stays)
{
    struct json v = json_make_string(STR("x"));
    struct arena a = {0};

    cr_assert_eq(json_keep_long(&a, &v), &v);
    cr_assert_not(json_has_raw(&v) || json_has_raw(NULL));
    cr_assert_null(json_keep_long(&a, NULL));
    arena_done(&a);
}
