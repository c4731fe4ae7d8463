#include "common/codec/json_scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/vec.h"
#include "testing.h"

/* Feeds a text in pieces of `step` bytes (0: whole), each in a separate block. */
struct feeder {
    struct str text;
    size_t at, step;
    char *piece;
};

static bool feed(struct feeder *f, struct json_scan *s)
{
    size_t n = f->step ? f->step : f->text.len;

    if (f->at >= f->text.len)
        return false;
    if (n > f->text.len - f->at)
        n = f->text.len - f->at;
    free(f->piece);
    f->piece = malloc(n);
    memcpy(f->piece, f->text.p + f->at, n);
    f->at += n;
    json_scan_feed(s, str_of(f->piece, n));
    return true;
}

static void rebuild(const struct json_scan *s, struct json_out *o)
{
    switch (s->token) {
    case JSON_TOKEN_NULL:
        json_out_null(o);
        break;
    case JSON_TOKEN_FALSE:
    case JSON_TOKEN_TRUE:
        json_out_bool(o, s->token == JSON_TOKEN_TRUE);
        break;
    case JSON_TOKEN_NUMBER:
        json_out_raw(o, s->text);
        break;
    case JSON_TOKEN_STRING:
        json_out_str(o, s->text);
        break;
    case JSON_TOKEN_KEY:
        json_out_key_str(o, s->text);
        break;
    case JSON_TOKEN_ARRAY:
        json_out_arr(o);
        break;
    case JSON_TOKEN_ARRAY_END:
        json_out_end_arr(o);
        break;
    case JSON_TOKEN_OBJECT:
        json_out_obj(o);
        break;
    case JSON_TOKEN_OBJECT_END:
        json_out_end_obj(o);
        break;
    case JSON_TOKEN_END:
        break;
    }
}

/* Walks the text in pieces and writes the tokens to out. Returns 0 if the document is complete, and
 * -1 on error or if it is unfinished. */
static int walk(struct str text, size_t step, struct buf *out)
{
    struct feeder f = {.text = text, .step = step};
    struct json_scan s;
    struct json_out o = json_out_to(out);
    struct err e;
    int rc;

    json_scan_init(&s, 4096);
    for (;;) {
        rc = json_scan_next(&s, &e);
        if (rc < 0)
            break;
        if (rc == 0) {
            if (feed(&f, &s))
                continue;
            rc = -1;
            break;
        }
        rebuild(&s, &o);
        if (s.token == JSON_TOKEN_END && f.at == text.len) {
            rc = 0;
            break;
        }
        if (s.token == JSON_TOKEN_END)
            (void)feed(&f, &s);
    }
    json_scan_done(&s);
    free(f.piece);
    return rc;
}

static const char doc[] =
    " {\"a\": [1, -2.5e3, \"x\\u00e9\\ud83d\\ude00\\n\", []], \"b\":{\"c\":null,\"d\":true},"
    "\"a long key of more than sixteen bytes\":false, \"\": {}, \"n\":[[[]],{\"k\":[{}]}]}  ";

TEST(json_scan, same_tokens_for_every_piece_size)
{
    struct arena a = {0};
    struct buf want = {0}, got = {0};
    const struct json *v;
    struct err e;

    cr_assert_eq(json_parse(&a, str_cstr(doc), &v, &e), 0);
    json_write(&want, v);
    for (size_t step = 0; step < sizeof(doc); step++) {
        buf_clear(&got);
        cr_assert_eq(walk(str_cstr(doc), step, &got), 0, "step %zu", step);
        cr_assert(str_eq(buf_str(&got), buf_str(&want)), "step %zu: %.*s", step, (int)got.len,
                  got.p);
    }
    buf_done(&want);
    buf_done(&got);
    arena_done(&a);
}

TEST(json_scan, refuses_what_is_no_json)
{
    static const char *const bad[] = {
        "[1,]",      "[,1]",     "{\"a\"}", "{\"a\":1,}", "{1:2}",      "[1 2]",
        "[tru]",     "[nulL]",   "[01]",    "[1.]",       "[-]",        "[1e]",
        "]",         "[}",       "{]",      "[\"\\x\"]",  "[\"\x01\"]", "[\"\xff\"]",
        "{\"a\" 1}", "{\"a\":}", "[+1]",    "[1] [2]",    "[",          "{\"a\":1",
        "[\"a",      "nul",      "",        "[1}",        "{\"a\":1]",  "{,\"a\":1}",
    };
    struct buf out = {0};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        for (size_t step = 0; step < 4; step++)
            cr_assert_eq(walk(str_cstr(bad[i]), step, &out), -1, "%s", bad[i]);
    }
    buf_done(&out);
}

/* Calls one bulk function until it is done. Feeds a piece whenever it asks for one. */
#define DRIVE(f, s, call)                             \
    ({                                                \
        int rc_;                                      \
        while ((rc_ = (call)) == 0 && feed((f), (s))) \
            ;                                         \
        rc_;                                          \
    })

TEST(json_scan, bulk_values_for_every_piece_size)
{
    static const char text[] =
        "{\"text\":\"a ]}\\\"\\\\\",\"output_ids\": [1,22, 333 ,2147483647,0],\"skip\":[[1,{\"a\":"
        "\"]\\\"\"}],2],\"lp\":[[-0.5,7,null], [ null , 8 ],[1e-3,9,\"]\\\"x\"],[-12345,10,1]],"
        "\"none\":null,\"experts\":\"AAEC\\/\\/\\/\\/Aw==\",\"n\":-1.5e3,\"end\":true}";
    struct err e = {0};

    for (size_t step = 0; step < sizeof(text); step++) {
        struct feeder f = {.text = str_cstr(text), .step = step};
        struct json_scan s;
        struct json_ints ids = {0}, lp_ids = {0};
        struct json_floats lps = {0};
        struct buf experts = {0};
        bool null;
        unsigned seen = 0;

        json_scan_init(&s, 256);
        for (;;) {
            cr_assert_eq(DRIVE(&f, &s, json_scan_next(&s, &e)), 1, "%s", e.text);
            if (s.token == JSON_TOKEN_END)
                break;
            if (s.token != JSON_TOKEN_KEY)
                continue;
            seen++;
            if (str_eq_c(s.text, "output_ids"))
                cr_assert_eq(DRIVE(&f, &s, json_scan_ints(&s, 1, &ids, &e)), 1, "%s", e.text);
            else if (str_eq_c(s.text, "lp"))
                cr_assert_eq(DRIVE(&f, &s, json_scan_triples(&s, 0, &lps, &lp_ids, &e)), 1, "%s",
                             e.text);
            else if (str_eq_c(s.text, "none"))
                cr_assert_eq(DRIVE(&f, &s, json_scan_ints(&s, 0, &ids, &e)), 1, "%s", e.text);
            else if (str_eq_c(s.text, "experts"))
                cr_assert_eq(DRIVE(&f, &s, json_scan_base64(&s, 100, &experts, &null, &e)), 1, "%s",
                             e.text);
            else
                cr_assert_eq(DRIVE(&f, &s, json_scan_skip(&s, &e)), 1, "%s", e.text);
        }
        cr_assert_eq(seen, 8);
        cr_assert_eq(ids.n, 4);
        cr_assert(ids.at[0] == 22 && ids.at[1] == 333 && ids.at[2] == INT32_MAX && ids.at[3] == 0);
        cr_assert_eq(lps.n, 4);
        cr_assert(lps.at[0] == -0.5F && isnan(lps.at[1]) && lps.at[2] == 1e-3F &&
                  lps.at[3] == -12345.0F);
        cr_assert(lp_ids.n == 4 && lp_ids.at[0] == 7 && lp_ids.at[3] == 10);
        cr_assert(str_eq(buf_str(&experts), STR("\0\1\2\xff\xff\xff\3")));
        vec_done(&ids);
        vec_done(&lp_ids);
        vec_done(&lps);
        buf_done(&experts);
        json_scan_done(&s);
        free(f.piece);
    }
}

/* Reads a window of the bytes 0 to 8 from pieces of any size. One text has a backslash before a
 * character other than a slash. */
TEST(json_scan, a_window_of_base64)
{
    static const char text[] = "{\"a\":\"AAECAwQFBgcI\",\"b\":null,\"c\":\"\\/\\/8=\"}";

    static const struct {
        uint64_t from, max;
        struct str want;
        bool over;
    } cases[] = {
        {0, 9, STR_LIT("\0\1\2\3\4\5\6\7\10"), false},
        {4, 9, STR_LIT("\4\5\6\7\10"), false},
        {4, 5, STR_LIT("\4\5\6\7\10"), false},
        {4, 4, STR_LIT(""), true},
        {9, 0, STR_LIT(""), false},
        {100, 0, STR_LIT(""), false},
        {0, 0, STR_LIT(""), true},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t step = 0; step < sizeof(text); step++) {
            struct feeder f = {.text = str_cstr(text), .step = step};
            struct base64_window w = {.from = cases[i].from, .max = cases[i].max};
            struct base64_window none = {0}, slash = {.max = 2};
            struct json_scan s;
            struct buf a = {0}, b = {0}, c = {0};
            struct err e = {0};
            bool null = true;

            json_scan_init(&s, 256);
            cr_assert_eq(DRIVE(&f, &s, json_scan_next(&s, &e)), 1);
            cr_assert_eq(DRIVE(&f, &s, json_scan_next(&s, &e)), 1);
            cr_assert_eq(DRIVE(&f, &s, json_scan_base64_window(&s, &w, &a, &null, &e)), 1);
            cr_assert(!null && w.seen == 9 && w.over == cases[i].over);
            cr_assert(str_eq(buf_str(&a), cases[i].want), "case %zu, step %zu", i, step);
            cr_assert_eq(DRIVE(&f, &s, json_scan_next(&s, &e)), 1);
            cr_assert_eq(DRIVE(&f, &s, json_scan_base64_window(&s, &none, &b, &null, &e)), 1);
            cr_assert(null && b.len == 0 && !none.over);
            cr_assert_eq(DRIVE(&f, &s, json_scan_next(&s, &e)), 1);
            cr_assert_eq(DRIVE(&f, &s, json_scan_base64_window(&s, &slash, &c, &null, &e)), 1);
            cr_assert(str_eq(buf_str(&c), STR("\xff\xff")));
            buf_done(&a);
            buf_done(&b);
            buf_done(&c);
            json_scan_done(&s);
            free(f.piece);
        }
    }
}

static int ints_of(const char *text, size_t step)
{
    struct feeder f = {.text = str_cstr(text), .step = step};
    struct json_scan s;
    struct json_ints ids = {0};
    struct err e;
    int rc;

    json_scan_init(&s, 64);
    rc = DRIVE(&f, &s, json_scan_ints(&s, 0, &ids, &e));
    vec_done(&ids);
    json_scan_done(&s);
    free(f.piece);
    return rc;
}

static int triples_of(const char *text, size_t step)
{
    struct feeder f = {.text = str_cstr(text), .step = step};
    struct json_scan s;
    struct json_ints ids = {0};
    struct json_floats lps = {0};
    struct err e;
    int rc;

    json_scan_init(&s, 64);
    rc = DRIVE(&f, &s, json_scan_triples(&s, 0, &lps, &ids, &e));
    vec_done(&ids);
    vec_done(&lps);
    json_scan_done(&s);
    free(f.piece);
    return rc;
}

TEST(json_scan, bulk_refuses)
{
    static const char *const bad_ints[] = {
        "[-1]",    "[1.0]", "[1e3]", "[2147483648]", "[01]", "[1,]",          "[,1]",
        "[\"1\"]", "{}",    "[1 2]", "[null]",       "7 ",   "[99999999999]", "[[1]]"};
    static const char *const bad_triples[] = {"[[1]]",    "[[1,2,3,4]]", "[1,2]",       "[[1,2}]",
                                              "[[,2]]",   "[[1,-2]]",    "[[1,2,]",     "[[1,2.5]]",
                                              "[[1,2],]", "[[nul,2]]",   "[[1,2][1,2]]"};

    for (size_t step = 0; step < 4; step++) {
        for (size_t i = 0; i < ARRAY_LEN(bad_ints); i++)
            cr_assert_eq(ints_of(bad_ints[i], step), -1, "%s", bad_ints[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad_triples); i++)
            cr_assert_neq(triples_of(bad_triples[i], step), 1, "%s", bad_triples[i]);
        cr_assert_eq(ints_of("[1,2", step), 0);
        cr_assert_eq(ints_of("[]", step), 1);
        cr_assert_eq(triples_of("[]", step), 1);
    }
}

TEST(json_scan, long_texts_have_a_limit)
{
    struct json_scan s;
    struct err e;
    char text[300];

    memset(text, 'x', sizeof(text));
    text[0] = '"';
    json_scan_init(&s, 100);
    json_scan_feed(&s, str_of(text, sizeof(text)));
    cr_assert_eq(json_scan_next(&s, &e), -1);
    json_scan_reset(&s);
    json_scan_feed(&s, str_of(text, sizeof(text)));
    cr_assert_eq(json_scan_skip(&s, &e), 0);
    text[0] = 'y';
    text[299] = '"';
    json_scan_feed(&s, str_of(text, sizeof(text)));
    cr_assert_eq(json_scan_skip(&s, &e), 1);
    cr_assert(s.at == s.end);
    json_scan_done(&s);
}

/* Result of a bulk call. */
struct bulk_result {
    int rc;
    size_t items;
    struct json_ints ids;
    struct json_floats lps;
};

enum bulk_kind { IDS, LOGPROBS, TRIPLES };

static int bulk_call(struct json_scan *s, enum bulk_kind kind, size_t from, struct bulk_result *r)
{
    struct err e;

    switch (kind) {
    case IDS:
        return json_scan_ints(s, from, &r->ids, &e);
    case LOGPROBS:
        return json_scan_floats(s, from, &r->lps, &e);
    default:
        return json_scan_triples(s, from, &r->lps, &r->ids, &e);
    }
}

static struct bulk_result bulk_of(struct str text, enum bulk_kind kind, bool wide, size_t step)
{
    struct feeder f = {.text = text, .step = step};
    struct bulk_result r = {0};
    struct json_scan s;

    json_scan_init(&s, 4096);
    s.wide = wide && s.wide;
    r.rc = DRIVE(&f, &s, bulk_call(&s, kind, 3, &r));
    r.items = s.items;
    json_scan_done(&s);
    free(f.piece);
    return r;
}

static void bulk_done(struct bulk_result *r)
{
    vec_done(&r->ids);
    vec_done(&r->lps);
}

static bool same_numbers(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * 4) == 0);
}

/* Reads with vector instructions, with portable code, and in pieces so small that only the exact
 * reader works. All must have the same result. Returns it, with the values of `want` items. */
static int check_bulk(struct str text, enum bulk_kind kind)
{
    struct bulk_result exact = bulk_of(text, kind, false, 16);
    int rc = exact.rc;

    for (int way = 0; way < 4; way++) {
        struct bulk_result r = bulk_of(text, kind, way % 2, way / 2 ? text.len / 2 + 3 : 0);

        cr_assert_eq(r.rc, exact.rc, "way %d of %.*s", way, (int)text.len, text.p);
        if (rc == 1) {
            cr_assert_eq(r.items, exact.items);
            cr_assert(same_numbers(r.ids.at, r.ids.n, exact.ids.at, exact.ids.n));
            cr_assert(same_numbers(r.lps.at, r.lps.n, exact.lps.at, exact.lps.n));
        }
        bulk_done(&r);
    }
    bulk_done(&exact);
    return rc;
}

/* Calls check_bulk, and compares the values with these. */
static void check_values(struct str text, enum bulk_kind kind, const int32_t *ids, const float *lps,
                         size_t n)
{
    struct bulk_result r = bulk_of(text, kind, true, 0);

    cr_assert_eq(check_bulk(text, kind), 1);
    cr_assert_eq(r.items, n);
    if (kind != LOGPROBS)
        cr_assert(same_numbers(r.ids.at, r.ids.n, ids + 3, n - 3));
    if (kind != IDS)
        cr_assert(same_numbers(r.lps.at, r.lps.n, lps + 3, n - 3));
    bulk_done(&r);
}

static void write_number(char *out, size_t n, double value, unsigned form)
{
    static const int digits[] = {17, 9, 3, 16};

    if (form % 3 == 0)
        (void)snprintf(out, n, "%.*g", digits[form % 4], value);
    else if (form % 3 == 1)
        (void)snprintf(out, n, "%.*e", digits[form % 4], value);
    else
        (void)snprintf(out, n, "%.*f", digits[form % 4] % 9, value);
}

/* Compares with the C library: ids of all lengths, logprobs of all forms, with and without spaces.
 */
TEST(json_scan, long_arrays_are_read_exactly)
{
    enum { N = 20000 };

    static int32_t ids[N];
    static float lps[N];
    struct buf plain = {0}, numbers = {0}, triples = {0};
    uint64_t rng = 1;

    for (int space = 0; space < 2; space++) {
        const char *comma = space ? ", " : ",";

        buf_clear(&plain);
        buf_clear(&numbers);
        buf_clear(&triples);
        for (int i = 0; i < N; i++) {
            char number[64];
            float value;

            rng = rng * 6364136223846793005u + 1442695040888963407u;
            ids[i] = (int32_t)((rng >> 33) >> (rng >> 28 & 31));
            if (i > N / 2) /* as models write them: without slow ones between */
                ids[i] %= i > N / 4 * 3 ? 152000 : 100000000;
            value = -(float)(rng >> 40) / (float)(1u << (rng >> 20 & 31));
            if (i > N / 2)
                value = -(float)(rng >> 40) / 1.6e6F;
            write_number(number, sizeof(number), (double)value, (unsigned)(rng >> 58));
            lps[i] = strtof(number, NULL);
            buf_printf(&plain, "%s%d", i == 0 ? "[" : comma, ids[i]);
            buf_printf(&numbers, "%s%s", i == 0 ? "[" : comma, number);
            buf_printf(&triples, space ? "%s[%s, %d, null]" : "%s[%s,%d,null]",
                       i == 0 ? "[" : comma, number, ids[i]);
        }
        buf_puts(&plain, "]");
        buf_puts(&numbers, "]");
        buf_puts(&triples, "]");
        check_values(buf_str(&plain), IDS, ids, NULL, N);
        check_values(buf_str(&numbers), LOGPROBS, NULL, lps, N);
        check_values(buf_str(&triples), TRIPLES, ids, lps, N);
    }
    buf_done(&plain);
    buf_done(&numbers);
    buf_done(&triples);
}

/* Tests a long array with one odd item at every position within a block. */
static void check_odd(enum bulk_kind kind, const char *usual, const char *comma, const char *odd)
{
    struct buf text = {0};

    for (int place = 0; place < 40; place++) {
        buf_clear(&text);
        for (int i = 0; i < 150; i++)
            buf_printf(&text, "%s%s", i == 0 ? "[" : comma, i == 50 + place ? odd : usual);
        buf_puts(&text, "]");
        (void)check_bulk(buf_str(&text), kind);
    }
    buf_done(&text);
}

/* Items of every form that one of the readers could accept wrongly. */
static const char *const odd[] = {
    "",
    "1 2",
    "012",
    "00",
    "0",
    "-1",
    "+1",
    "1.0",
    "1e3",
    "1E3",
    "12345678",
    "123456789",
    "99999999",
    "100000000",
    "2147483647",
    "2147483648",
    "99999999999999999999",
    " 7",
    "7 ",
    "\t7\r\n ",
    "null",
    "nul",
    "\"1\"",
    "[1]",
    "1;2",
    "1/2",
    "1:2",
    "-",
    "-.5",
    ".5",
    "5.",
    "-0",
    "-0.0",
    "-00.5",
    "-1.5e-7",
    "-1.5e+7",
    "-1.5e",
    "-12.5",
    "-123.5",
    "-1234567.5",
    "1e400",
    "-0.1234567890123456789012345",
    "-0.12345678901234567890123456789012345678901234567890",
    "-1.0000000596046448",
    "-16777217.0",
    "-0.000000000000000000001",
    "-1.17549435e-38",
    "-1e-45",
    "\x80",
    "[-0.5,7,null]",
    "[-0.5,7]",
    "[-0.5]",
    "[-0.5, 7, null]",
    "[-0.5,7,nulL]",
    "[-0.5,7,null ]",
    "[-0.5,7,\"a,b]\"]",
    "[null,7,null]",
    "[-0.5,-7,null]",
    "[-0.5,7,null,null]",
    "(-0.5,7,null]",
    "[-0.5,7.5,null]",
    "[,7,null]",
    "[-0.5,,null]",
    "[-0.5,7,null}",
    "[[-0.5,7,null]",
    "[-5e-01,7,null]",
    "[-0.5 ,7 ,null]",
};

TEST(json_scan, odd_items_are_found_in_long_arrays)
{
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        for (int space = 0; space < 2; space++) {
            const char *comma = space ? ", " : ",";

            check_odd(IDS, "12345", comma, odd[i]);
            check_odd(IDS, "7", comma, odd[i]);
            check_odd(LOGPROBS, "-0.25123456789", comma, odd[i]);
            check_odd(TRIPLES, space ? "[-0.25, 151643, null]" : "[-0.25,151643,null]", comma,
                      odd[i]);
        }
    }
}

TEST(json_scan, arrays_on_many_lines)
{
    struct buf text = {0};

    for (int i = 0; i < 200; i++)
        buf_printf(&text, "%s%d", i == 0 ? "[\n  " : ",\r\n\t", 1000 + i);
    buf_puts(&text, "\n]");
    cr_assert_eq(check_bulk(buf_str(&text), IDS), 1);
    cr_assert_eq(check_bulk(buf_str(&text), LOGPROBS), 1);
    buf_clear(&text);
    for (int i = 0; i < 200; i++)
        buf_printf(&text, "%s[\n-0.5,\n%d,\nnull\n]", i == 0 ? "[\n" : ",\n", i);
    buf_puts(&text, "\n]");
    cr_assert_eq(check_bulk(buf_str(&text), TRIPLES), 1);
    buf_done(&text);
}

TEST(json_scan, arrays_of_numbers)
{
    static const char *const bad[] = {"[1,]", "[,1]", "[\"1\"]", "[1 2]",  "[nul]", "[01]",
                                      "[1.]", "[-]",  "{}",      "[true]", "[[1]]", "7 "};
    struct bulk_result r = bulk_of(STR("[0,0,0, null ,-1.5, 3e38,1e39,-0.0 ]"), LOGPROBS, true, 0);

    cr_assert_eq(r.rc, 1);
    cr_assert_eq(r.lps.n, 5);
    cr_assert(isnan(r.lps.at[0]) && r.lps.at[1] == -1.5F && r.lps.at[2] == 3e38F &&
              isinf(r.lps.at[3]) && r.lps.at[4] == 0 && signbit(r.lps.at[4]));
    bulk_done(&r);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_eq(check_bulk(str_cstr(bad[i]), LOGPROBS), -1, "%s", bad[i]);
    cr_assert_eq(check_bulk(STR("null"), LOGPROBS), 1);
    cr_assert_eq(check_bulk(STR("[]"), LOGPROBS), 1);
    cr_assert_eq(check_bulk(STR("[1,2"), LOGPROBS), 0);
}
