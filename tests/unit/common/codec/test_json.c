#include "common/base/cancel.h"
#include "common/base/limits.h"
#include "common/codec/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/json_number.h"
#include "testing.h"

/* Decodes a line of the case files: \xHH becomes one byte. */
static struct str unescape(char *line, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned byte;

        if (len - i >= 4 && line[i] == '\\' && line[i + 1] == 'x' &&
            sscanf(line + i + 2, "%2x", &byte) == 1 && strchr("0123456789abcdef", line[i + 3])) {
            line[n++] = (char)byte;
            i += 3;
        } else {
            line[n++] = line[i];
        }
    }
    return str_of(line, n);
}

/* Calls `each` for every line that is not a comment. Returns the number of lines. */
static int each_line(const char *path, void (*each)(char *line, size_t len, int number))
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int number = 0, cases = 0;

    cr_assert_not_null(f, "%s", path);
    while ((len = getline(&line, &cap, f)) >= 0) {
        number++;
        if (len > 0 && line[len - 1] == '\n')
            line[--len] = 0;
        if (line[0] == '#')
            continue;
        each(line, (size_t)len, number);
        cases++;
    }
    free(line);
    (void)fclose(f);
    return cases;
}

static const struct json *parse(struct arena *a, struct str text)
{
    const struct json *v;
    struct err e = {0};

    cr_assert_eq(json_parse(a, text, &v, &e), 0, "%.*s: %s", (int)text.len, text.p, e.text);
    return v;
}

static void accept_line(char *line, size_t len, int number)
{
    char *tab = memchr(line, '\t', len);
    struct str text = unescape(line, tab ? (size_t)(tab - line) : len);
    struct str want = tab ? unescape(tab + 1, len - (size_t)(tab + 1 - line)) : text;
    char *exact = malloc(text.len); /* sanitizers detect reads after its end */
    struct arena a = {0};
    struct buf out = {0};
    const struct json *v, *again;

    memcpy(exact, text.p, text.len);
    v = parse(&a, str_of(exact, text.len));
    json_write(&out, v);
    cr_assert(str_eq(buf_str(&out), want), "accept.txt:%d: wrote %.*s", number, (int)out.len,
              out.p);
    again = parse(&a, buf_str(&out));
    cr_assert(json_equal(v, again), "accept.txt:%d", number);
    buf_done(&out);
    arena_done(&a);
    free(exact);
}

static void reject_line(char *line, size_t len, int number)
{
    struct str text = unescape(line, len);
    char *exact = malloc(text.len ? text.len : 1);
    struct arena a = {0};
    const struct json *v;
    struct err e = {0};

    memcpy(exact, text.p, text.len);
    cr_assert_eq(json_parse(&a, str_of(exact, text.len), &v, &e), -1, "reject.txt:%d", number);
    cr_assert_eq(e.kind, ERR_INVALID);
    cr_assert_null(v);
    arena_done(&a);
    free(exact);
}

TEST(json, accepts)
{
    cr_assert_gt(each_line(RG_TEST_DATA "/json/accept.txt", accept_line), 60);
}

TEST(json, rejects)
{
    cr_assert_gt(each_line(RG_TEST_DATA "/json/reject.txt", reject_line), 150);
}

/* Compares with a writer that processes one character at a time, for all mixtures of escaped and
 * plain text, over more bytes than one reservation. */
TEST(json, strings_of_escapes_are_written)
{
    static const char *const parts[] = {"a",
                                        "\n",
                                        "\"",
                                        "\\",
                                        "\x01",
                                        "\x1f",
                                        "\x7f",
                                        "\xed\xa0\x80" /* a lone surrogate */,
                                        "\xed\x9f\xbf",
                                        "\xc3\xa9",
                                        "plain text of more than one block of bytes"};
    static const char *const written[] = {"a",
                                          "\\n",
                                          "\\\"",
                                          "\\\\",
                                          "\\u0001",
                                          "\\u001f",
                                          "\x7f",
                                          "\\ud800",
                                          "\xed\x9f\xbf",
                                          "\xc3\xa9",
                                          "plain text of more than one block of bytes"};
    uint32_t rng = 1;

    for (int round = 0; round < 2000; round++) {
        struct buf text = {0}, want = {0}, got = {0};
        unsigned most = (unsigned)ARRAY_LEN(parts) - (round % 2 ? 1 : 0), n = (unsigned)round % 701;

        buf_add_c(&want, '"');
        for (unsigned i = 0; i < n; i++) {
            unsigned k = round % 4 == 3 ? 1 + i % 6 : (rng = rng * 1664525 + 1013904223) >> 16;

            buf_puts(&text, parts[k % most]);
            buf_puts(&want, written[k % most]);
        }
        buf_add_c(&want, '"');
        json_write_string(&got, str_of(text.p ? text.p : "", text.len));
        cr_assert(str_eq(buf_str(&got), buf_str(&want)), "round %d", round);
        buf_done(&text);
        buf_done(&want);
        buf_done(&got);
    }
}

static struct str nested(struct buf *b, int depth)
{
    buf_clear(b);
    for (int i = 0; i < depth; i++)
        buf_puts(b, i % 2 ? "{\"k\":" : "[");
    buf_puts(b, "1");
    for (int i = depth - 1; i >= 0; i--)
        buf_add_c(b, i % 2 ? '}' : ']');
    return buf_str(b);
}

TEST(json, depth_has_a_limit)
{
    struct buf b = {0};
    struct arena a = {0};
    const struct json *v;
    struct err e = {0};

    (void)parse(&a, nested(&b, JSON_DEPTH_MAX));
    cr_assert_eq(json_parse(&a, nested(&b, JSON_DEPTH_MAX + 1), &v, &e), -1);
    cr_assert_not_null(strstr(e.text, "too deep"), "%s", e.text);
    buf_clear(&b);
    for (int i = 0; i < 1000000; i++)
        buf_add_c(&b, '[');
    cr_assert_eq(json_parse(&a, buf_str(&b), &v, &e), -1);
    buf_done(&b);
    arena_done(&a);
}

TEST(json, errors_name_the_byte)
{
    static const struct {
        const char *text, *at;
    } cases[] = {
        {"[1, x]", "byte 4"},     {"{\"a\":1,}", "byte 7"}, {"\"a\n\"", "byte 2"},
        {"[\"\xff\"]", "byte 2"}, {"[1] 2", "byte 4"},      {"[", "unexpected end at byte 1"},
        {"[\"\\q\"]", "byte 3"},
    };
    struct arena a = {0};
    const struct json *v;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cr_assert_eq(json_parse(&a, str_cstr(cases[i].text), &v, &e), -1);
        cr_assert_not_null(strstr(e.text, cases[i].at), "%s: %s", cases[i].text, e.text);
    }
    arena_done(&a);
}

TEST(json, many_keys)
{
    struct buf b = {0};
    struct arena a = {0};
    const struct json *v;
    int64_t n;

    buf_puts(&b, "{");
    for (int i = 0; i < 200000; i++)
        buf_printf(&b, "%s\"k%d\":%d", i ? "," : "", i % 150000, i);
    buf_puts(&b, "}");
    v = parse(&a, buf_str(&b));
    cr_assert_eq(v->n, 150000);
    cr_assert_eq(json_to_i64(json_get(v, "k7"), &n), 0);
    cr_assert_eq(n, 150007);
    cr_assert(str_eq_c(json_text(&v->members[149999].key), "k149999"));
    buf_done(&b);
    arena_done(&a);
}

TEST(json, lone_surrogates_are_flagged_and_kept)
{
    struct arena a = {0};
    const struct json *v = parse(&a, STR("[\"a\\ud83d\", \"\\ud83d\\ude00\", \"b\"]"));

    cr_assert_eq(v->items[0].flags, JSON_SURROGATE);
    cr_assert(str_eq_c(json_text(json_at(v, 0)), "a\xed\xa0\xbd"));
    cr_assert_eq(v->items[1].flags, 0);
    cr_assert(str_eq_c(json_text(json_at(v, 1)), "\xf0\x9f\x98\x80"));
    cr_assert_eq(v->items[2].flags, 0);
    arena_done(&a);
}

TEST(json, lone_surrogates_are_replaced_for_those_who_ask)
{
    static const struct str text =
        STR_LIT("{\"a\": [\"x\\ud83d\"], \"b\\udfff\": \"\\ud83d\\ude00\"}");
    struct arena a = {0};
    const struct json *v, *kept = parse(&a, text);

    cr_assert_eq(json_parse_replacing(&a, text, &v, NULL), 0);
    cr_assert_eq(v->flags, JSON_SURROGATE);
    cr_assert_eq(kept->flags, JSON_SURROGATE);
    cr_assert(str_eq_c(json_text(json_at(json_get(v, "a"), 0)), "x\xef\xbf\xbd"));
    cr_assert(str_eq_c(json_text(&v->members[1].key), "b\xef\xbf\xbd"));
    cr_assert_eq(json_get(v, "a")->items[0].flags, JSON_SURROGATE);
    cr_assert_eq(json_parse_replacing(&a, STR("[\"\\ud83d\\ude00\"]"), &v, NULL), 0);
    cr_assert_eq(v->flags, 0);
    arena_done(&a);
}

TEST(json, accessors_take_anything)
{
    struct arena a = {0};
    const struct json *v =
        parse(&a, STR("{\"s\":\"x\",\"n\":1.0,\"t\":true,\"z\":null,\"a\":[7]}"));
    double d;
    int64_t n;

    cr_assert(str_eq_c(json_string(json_get(v, "s")), "x"));
    cr_assert_null(json_string(json_get(v, "n")).p);
    cr_assert_null(json_get(json_get(v, "s"), "s"));
    cr_assert_null(json_get(NULL, "s"));
    cr_assert(json_is_true(json_get(v, "t")));
    cr_assert_not(json_is_true(NULL));
    cr_assert(json_is_null(json_get(v, "z")) && json_is_null(json_get(v, "absent")));
    cr_assert_eq(json_to_i64(json_get(v, "n"), &n), 0);
    cr_assert_eq(json_to_i64(json_get(v, "s"), &n), -1);
    cr_assert_eq(json_to_double(NULL, &d), -1);
    cr_assert_eq(json_to_i64(json_at(json_get(v, "a"), 0), &n), 0);
    cr_assert_eq(n, 7);
    cr_assert_null(json_at(json_get(v, "a"), 1));
    arena_done(&a);
}

TEST(json, several_members_in_one_go_are_those_of_one_by_one)
{
    static const char *const texts[] = {
        "{\"b\": 1, \"a\": 2, \"b\": 3, \"bb\": 4, \"\": 5, \"c\": null}", "{}", "[1]", "\"a\"",
        "null"};
    static const struct str names[] = {STR_LIT("a"), STR_LIT("b"), STR_LIT("c"), STR_LIT("d"),
                                       STR_LIT("")};
    const struct json *v, *at[ARRAY_LEN(names)];
    struct arena a = {0};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        cr_assert_eq(json_parse(&a, str_cstr(texts[i]), &v, NULL), 0);
        json_get_each(v, names, ARRAY_LEN(names), at);
        for (size_t k = 0; k < ARRAY_LEN(names); k++)
            cr_expect_eq(at[k], json_get_str(v, names[k]), "%s: %s", texts[i], names[k].p);
    }
    json_get_each(NULL, names, ARRAY_LEN(names), at);
    cr_expect_null(at[0]);
    arena_done(&a);
}

TEST(json, integers)
{
    static const struct {
        const char *text;
        int64_t value;
        int rc;
    } cases[] = {
        {"0", 0, 0},
        {"-0", 0, 0},
        {"-0.000e99", 0, 0},
        {"1.0", 1, 0},
        {"1e3", 1000, 0},
        {"120e-1", 12, 0},
        {"1.50e1", 15, 0},
        {"1.5", 0, -1},
        {"1e-1", 0, -1},
        {"9223372036854775807", INT64_MAX, 0},
        {"-9223372036854775808", INT64_MIN, 0},
        {"9223372036854775808", 0, -1},
        {"-9223372036854775809", 0, -1},
        {"1e18", 1000000000000000000, 0},
        {"1e19", 0, -1},
        {"1e99999999999999999999999", 0, -1},
        {"1000000000000000000000e-20", 10, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t v = 0;

        cr_assert_eq(json_number_i64(str_cstr(cases[i].text), &v), cases[i].rc, "%s",
                     cases[i].text);
        cr_assert_eq(v, cases[i].value, "%s", cases[i].text);
    }
}

TEST(json, equality)
{
    static const struct {
        const char *a, *b;
        bool equal;
    } cases[] = {
        {"1", "1.0", true},
        {"1", "1e0", true},
        {"100", "1E+2", true},
        {"-0", "0", true},
        {"0.1", "1e-1", true},
        {"1", "2", false},
        {"1", "-1", false},
        {"12", "1", false},
        {"123456789012345678901234567890", "123456789012345678901234567891", false},
        {"123456789012345678901234567890", "12345678901234567890123456789e1", true},
        {"0.1", "0.10000000000000000555", true},
        {"9007199254740993", "9007199254740992", false},
        {"\"a\"", "\"\\u0061\"", true},
        {"\"1\"", "1", false},
        {"true", "false", false},
        {"null", "false", false},
        {"[1,2]", "[1,2,3]", false},
        {"[1,2]", "[2,1]", false},
        {"{\"a\":1,\"b\":[2]}", "{\"b\":[2.0],\"a\":1}", true},
        {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}", false},
        {"{\"a\":1}", "{\"a\":1,\"b\":2}", false},
        {"{\"a\":1,\"a\":2}", "{\"a\":2}", true},
    };
    struct arena a = {0};

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct json *x = parse(&a, str_cstr(cases[i].a));
        const struct json *y = parse(&a, str_cstr(cases[i].b));

        cr_assert_eq(json_equal(x, y), cases[i].equal, "%s %s", cases[i].a, cases[i].b);
        cr_assert_eq(json_equal(y, x), cases[i].equal, "%s %s", cases[i].b, cases[i].a);
    }
    arena_done(&a);
}

static void assert_repr(double d, const char *want)
{
    struct buf b = {0};

    json_write_double(&b, d);
    cr_assert(str_eq_c(buf_str(&b), want), "%.*s, want %s", (int)b.len, b.p, want);
    buf_done(&b);
}

TEST(json, doubles_are_written_as_python_does)
{
    assert_repr(0.0, "0.0");
    assert_repr(-0.0, "-0.0");
    assert_repr(1, "1.0");
    assert_repr(-1.5, "-1.5");
    assert_repr(0.1, "0.1");
    assert_repr(0.1 + 0.2, "0.30000000000000004");
    assert_repr(100, "100.0");
    assert_repr(1e15, "1000000000000000.0");
    assert_repr(1e16, "1e+16");
    assert_repr(123456789012345680.0, "1.2345678901234568e+17");
    assert_repr(0.0001, "0.0001");
    assert_repr(0.00001, "1e-05");
    assert_repr(1.5e-7, "1.5e-07");
    assert_repr(1e100, "1e+100");
    assert_repr(5e-324, "5e-324");
    assert_repr(1.7976931348623157e308, "1.7976931348623157e+308");
    assert_repr(9007199254740993.0, "9007199254740992.0");
    assert_repr(2e-44, "2e-44");
    assert_repr(0x1p-1, "0.5");
    assert_repr(0x1p-24, "5.960464477539063e-08");
    assert_repr(0x1p182, "6.129982163463556e+54");
    assert_repr(0x1p-44, "5.684341886080802e-14");
    assert_repr(0x1.fffffffffffffp-2, "0.49999999999999994");
    assert_repr(-(double)0.1F, "-0.10000000149011612");
    assert_repr(1e-9, "1e-09");
    assert_repr(0x1.12e0be826d694p-30, "9.999999999999999e-10");
    assert_repr(99999999999999.98, "99999999999999.98");
    assert_repr(0.9999999999999999, "0.9999999999999999");
    assert_repr(9.999999999999998, "9.999999999999998");
    assert_repr((double)NAN, "null");
    assert_repr(-(double)INFINITY, "null");
}

TEST(json, doubles_read_back)
{
    char text[JSON_DOUBLE_TEXT_MAX];
    uint64_t rng = 88172645463325252u;

    for (int i = 0; i < 200000; i++) {
        double d, back;
        size_t n;

        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        memcpy(&d, &rng, sizeof(d));
        if (i % 2)
            d = -(double)(rng >> 40) / (double)(rng >> 20 & 0xfffff);
        if (!isfinite(d))
            continue;
        n = json_number_write(text, d);
        cr_assert_eq(json_number_double(str_of(text, n), &back), 0);
        cr_assert_eq(memcmp(&d, &back, sizeof(d)), 0, "%.*s", (int)n, text);
    }
    cr_assert_eq(json_number_double(STR("1e400"), &(double){0}), -1);
}

static size_t count_digits(const char *text, size_t n)
{
    size_t all = 0, zeros = 0;

    for (size_t i = 0; i < n && text[i] != 'e'; i++) {
        if (text[i] == '.' || text[i] == '-' || (all == 0 && text[i] == '0'))
            continue;
        all++;
        zeros = text[i] == '0' ? zeros + 1 : 0;
    }
    return all - zeros;
}

TEST(json, doubles_have_no_digit_too_many)
{
    char text[JSON_DOUBLE_TEXT_MAX] = {0}, fewer[40];
    uint64_t rng = 88172645463325252u;

    for (int i = 0; i < 30000; i++) {
        double d;
        size_t n;

        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        d = ldexp((double)(rng >> 11 | 1), -53 - (int)(rng % 40) + 20 * (i % 2));
        if (i % 3 == 0)
            d = (double)(float)d;
        n = json_number_write(text, d);
        n = count_digits(text, n);
        if (n < 2)
            continue;
        (void)snprintf(fewer, sizeof(fewer), "%.*e", (int)n - 2, d);
        cr_assert_neq(strtod(fewer, NULL), d, "%s", fewer);
    }
}

TEST(json, writes_without_a_tree)
{
    struct buf b = {0};
    struct json_out o = json_out_to(&b);
    struct arena a = {0};
    struct json made = json_make_i64(&a, INT64_MIN);

    json_out_obj(&o);
    json_out_key(&o, "a\n");
    json_out_arr(&o);
    json_out_i64(&o, -1);
    json_out_i64(&o, INT64_MIN);
    json_out_double(&o, 0.5);
    json_out_bool(&o, false);
    json_out_null(&o);
    json_out_str(&o, (struct str){0});
    json_out_str(&o, STR(""));
    json_out_cstr(&o, "x\"y");
    json_out_value(&o, NULL);
    json_out_value(&o, &made);
    json_out_end_arr(&o);
    json_out_key(&o, "e");
    json_out_obj(&o);
    json_out_end_obj(&o);
    json_out_key(&o, "r");
    json_out_raw(&o, STR("[1]"));
    json_out_end_obj(&o);
    cr_assert(str_eq_c(buf_str(&b), "{\"a\\n\":[-1,-9223372036854775808,0.5,false,null,null,\"\","
                                    "\"x\\\"y\",null,-9223372036854775808],\"e\":{},\"r\":[1]}"),
              "%.*s", (int)b.len, b.p);
    arena_done(&a);
    buf_done(&b);
}

/* Tests one special byte at each position of strings of each length, because the writer reads 16, 8
 * and single bytes at a time. */
/* A key with a different length, or a different byte at any position, is a different key. */
TEST(json, keys_of_each_length_are_told_apart)
{
    enum { LONGEST = 40 };

    for (size_t len = 0; len <= LONGEST; len++) {
        struct arena a = {0};
        char key[LONGEST + 2], text[LONGEST + 16];
        const struct json *v, *each[2];
        struct err e;

        memset(key, 'k', sizeof(key));
        cr_assert_lt(snprintf(text, sizeof(text), "{\"%.*s\":1}", (int)len, key),
                     (int)sizeof(text));
        cr_assert_eq(json_parse(&a, str_cstr(text), &v, &e), 0);
        cr_expect_eq(json_get_str(v, str_of(key, len)), &v->members[0].value, "%zu", len);
        cr_expect_null(json_get_str(v, str_of(key, len + 1)));
        for (size_t at = 0; at < len; at++) {
            struct str both[2];
            char other[LONGEST];

            memcpy(other, key, len);
            other[at] = 'x';
            both[0] = str_of(other, len);
            both[1] = str_of(key, len);
            cr_expect_null(json_get_str(v, both[0]), "%zu of %zu", at, len);
            json_get_each(v, both, ARRAY_LEN(both), each);
            cr_expect(!each[0] && each[1], "%zu of %zu", at, len);
        }
        arena_done(&a);
    }
}

TEST(json_write, a_special_byte_at_each_place_of_strings_of_each_length)
{
    static const struct {
        const char *from, *to;
    } cases[] = {{"\"", "\\\""},
                 {"\\", "\\\\"},
                 {"\n", "\\n"},
                 {"\x1f", "\\u001f"},
                 {"\x7f", "\x7f"},
                 {"\xed\xa0\x80", "\\ud800"},
                 {"\xed\x9f\xbf", "\xed\x9f\xbf"}};
    struct buf in = {0}, want = {0}, out = {0};

    for (size_t try = 0; try < 40 * 40 * ARRAY_LEN(cases); try++) {
        size_t i = try % ARRAY_LEN(cases), at = try / ARRAY_LEN(cases) % 40;
        size_t n = try / ARRAY_LEN(cases) / 40;

        buf_clear(&in), buf_clear(&want), buf_clear(&out);
        buf_add_c(&want, '"');
        for (size_t k = 0; k < n; k++) {
            buf_puts(&in, k == at ? cases[i].from : "x");
            buf_puts(&want, k == at ? cases[i].to : "x");
        }
        buf_add_c(&want, '"');
        json_write_string(&out, buf_str(&in));
        cr_assert(str_eq(buf_str(&out), buf_str(&want)), "length %zu, place %zu: %.*s", n, at,
                  (int)out.len, out.p);
    }
    buf_done(&in);
    buf_done(&want);
    buf_done(&out);
}

TEST(json_write, seconds_are_spelt_as_their_double)
{
    static const uint64_t ms[] = {0,
                                  1,
                                  10,
                                  100,
                                  999,
                                  1000,
                                  1001,
                                  12340,
                                  1790000,
                                  1790000000120,
                                  1790000000001,
                                  999999999999999,
                                  1000000000000001,
                                  9007199254740991};

    for (size_t i = 0; i < ARRAY_LEN(ms); i++) {
        struct buf a = {0}, b = {0};
        struct json_out fast = json_out_to(&a), slow = json_out_to(&b);

        json_out_arr(&fast);
        json_out_arr(&slow);
        for (int k = 0; k < 2; k++) {
            json_out_seconds(&fast, ms[i]);
            json_out_double(&slow, (double)ms[i] / 1000);
        }
        cr_expect(str_eq(buf_str(&a), buf_str(&b)), "%.*s, not %.*s", (int)a.len, a.p, (int)b.len,
                  b.p);
        buf_done(&a);
        buf_done(&b);
    }
}

/* Compares the quick paths with the C library, for texts that are hard to round. */
TEST(json, doubles_are_rounded_once)
{
    uint64_t rng = 0x9e3779b97f4a7c15u;
    char text[64];

    for (int i = 0; i < 300000; i++) {
        double got, want;
        int digits, n;

        rng = rng * 6364136223846793005u + 1442695040888963407u;
        digits = 1 + (int)(rng >> 59) % 20;
        n = snprintf(text, sizeof(text), "%s%u.%0*llu", rng >> 20 & 1 ? "-" : "",
                     (unsigned)(rng >> 33 & (i % 3 ? 7 : 0xffff)), digits,
                     (unsigned long long)(rng * 2862933555777941757u) % 10000000000000000000u);
        if (i % 5 == 0)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "e%d", (int)(rng >> 40 & 63) - 40);
        want = strtod(text, NULL);
        cr_assert_eq(json_number_double(str_of(text, (size_t)n), &got), 0);
        cr_assert_eq(memcmp(&got, &want, sizeof(got)), 0, "%s: %.17g, want %.17g", text, got, want);
    }
    /* The middle between two doubles, exactly and with one more digit; mantissas that wrap. */
    static const char *const hard[] = {"9007199254740993",
                                       "9007199254740993.0",
                                       "9007199254740993.00000000000000000001",
                                       "18446744073709551616",
                                       "0.18446744073709551616",
                                       "1.00000000000000011102230246251565404",
                                       "0e99",
                                       "0.0e-5",
                                       "0.00000000000000000000000000012345678901234567",
                                       "123456789012345678e-27",
                                       "1e-400",
                                       "5e-324",
                                       "1e22",
                                       "1e23"};

    for (size_t i = 0; i < ARRAY_LEN(hard); i++) {
        double got, want = strtod(hard[i], NULL);

        cr_assert_eq(json_number_double(str_cstr(hard[i]), &got), 0);
        cr_assert_eq(memcmp(&got, &want, sizeof(got)), 0, "%s", hard[i]);
    }
}

TEST(json, work_that_is_cancelled_ends)
{
    static const atomic_bool wanted = true;
    struct arena a = {0};
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, STR("[[1]]"), &v, &e), 0);
    cancel_flag = &wanted;
    cr_assert_eq(json_parse(&a, STR("[[1]]"), &v, &e), -1);
    cancel_flag = NULL;
    cr_assert_eq(e.kind, ERR_CANCELLED);
    arena_done(&a);
}
