#include "worker/plane/call/stop_text.h"

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"

/* Feeds text in pieces of n bytes. Compares the output, followed by '|' and the found stop string.
 */
static void run(const char *stops, const char *text, size_t n, const char *want)
{
    struct arena a = {0};
    struct stop_text s;
    struct buf out = {0};
    struct err e = {0};
    const struct json *list = NULL;
    struct str all = str_cstr(text);

    cr_assert_eq(json_parse(&a, str_cstr(stops), &list, &e), 0);
    stop_text_init(&s, stop_tree_new(&a, list));
    for (size_t at = 0; at < all.len; at += n)
        stop_text_feed(&s, str_sub(all, at, n), &out);
    stop_text_finish(&s, &out);
    buf_printf(&out, "|%.*s", (int)s.hit.len, s.hit.p ? s.hit.p : "");
    cr_assert(str_eq_c(buf_str(&out), want), "%s in pieces of %zu: got %.*s want %s", text, n,
              (int)out.len, out.p, want);
    stop_text_done(&s);
    buf_done(&out);
    arena_done(&a);
}

TEST(stop_text, cuts_alike_for_any_pieces)
{
    static const char *const cases[][3] = {
        {"[]", "all of it", "all of it|"},      {"[\"END\"]", "one END two", "one |END"},
        {"[\"END\"]", "one EN", "one EN|"},     {"[\"END\"]", "ENEND", "EN|END"},
        {"[\"ab\", \"abc\"]", "xabcd", "x|ab"}, {"[\"zz\", \"b\"]", "aabzz", "aa|b"},
        {"[\"abcd\", \"bc\"]", "abcd", "a|bc"}, {"[\"bc\", \"abc\"]", "xabc", "x|abc"},
        {"[\"aab\"]", "aaab", "a|aab"},         {"[\"\\n\\n\"]", "a\nb\n\nc", "a\nb|\n\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t n = 1; n <= 12; n++)
            run(cases[i][0], cases[i][1], n, cases[i][2]);
    }
}

/* A stop string that is passed as text does not end the answer. The search continues after it. */
TEST(stop_text, passes_a_stop_string_as_text)
{
    static const char *const cases[][2] = {
        {"one END two", "one END two|"}, {"one END two END", "one END two |END"},
        {"ENDEND", "END|END"},           {"ENDENE", "ENDENE|"},
        {"ENDNDEND", "ENDND|END"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t n = 1; n <= 12; n++) {
            struct arena a = {0};
            struct stop_text s;
            struct buf out = {0};
            struct err e = {0};
            const struct json *list = NULL;
            struct str all = str_cstr(cases[i][0]);
            bool passed = false;

            cr_assert_eq(json_parse(&a, STR("[\"END\"]"), &list, &e), 0);
            stop_text_init(&s, stop_tree_new(&a, list));
            for (size_t at = 0; at < all.len; at += n) {
                stop_text_feed(&s, str_sub(all, at, n), &out);
                if (!s.hit.p || passed)
                    continue;
                stop_text_pass(&s, &out);
                passed = true;
            }
            stop_text_finish(&s, &out);
            buf_printf(&out, "|%.*s", (int)s.hit.len, s.hit.p ? s.hit.p : "");
            cr_assert(str_eq_c(buf_str(&out), cases[i][1]), "%s by %zu: got %.*s want %s",
                      cases[i][0], n, (int)out.len, out.p, cases[i][1]);
            stop_text_done(&s);
            buf_done(&out);
            arena_done(&a);
        }
    }
}

/* Only text that may become a stop string is held back. */
TEST(stop_text, holds_no_more_than_it_must)
{
    struct arena a = {0};
    struct stop_text s;
    struct buf out = {0};
    struct err e = {0};
    const struct json *list = NULL;

    cr_assert_eq(json_parse(&a, STR("[\"STOP\"]"), &list, &e), 0);
    stop_text_init(&s, stop_tree_new(&a, list));
    stop_text_feed(&s, STR("hello ST"), &out);
    cr_assert(str_eq_c(buf_str(&out), "hello "));
    stop_text_feed(&s, STR("x"), &out);
    cr_assert(str_eq_c(buf_str(&out), "hello STx"));
    stop_text_done(&s);
    buf_done(&out);
    arena_done(&a);
}

/* Measures n stop strings with a text of 4 n pieces. */
static struct cost feed(const void *ctx, uint32_t n)
{
    struct arena a = {0};
    struct buf json = {0}, out = {0};
    const struct json *list = NULL;
    struct stop_text s;
    struct cost ret;
    double start;

    (void)ctx;
    buf_puts(&json, "[");
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&json, "%s\"word %u\"", i ? "," : "", i + 10000);
    buf_puts(&json, "]");
    cr_assert_eq(json_parse(&a, buf_str(&json), &list, NULL), 0);
    start = cost_now_s();
    stop_text_init(&s, stop_tree_new(&a, list));
    for (uint32_t i = 0; i < 4 * n; i++)
        stop_text_feed(&s, STR("word 1"), &out);
    ret = (struct cost){cost_now_s() - start, a.used_bytes};
    cr_assert(!s.hit.p);
    stop_text_done(&s);
    buf_done(&json);
    buf_done(&out);
    arena_done(&a);
    return ret;
}

TEST(stop_text, many_stops_cost_their_number)
{
    expect_linear("stops", feed, NULL, 500);
}
