#include "common/codec/json_scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/vec.h"
#include "testing.h"

/* Feeds text in pieces of `step` bytes (0: whole), each in a block of its own. */
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

/* Walks the text in pieces; what it saw is written to out. 0 complete, -1 error or unfinished. */
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
            rc = json_scan_complete(&s) ? 0 : -1;
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

/* Calls one bulk function until it is done; feeds as it asks. */
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
    cr_assert(json_scan_complete(&s));
    json_scan_done(&s);
}

/* The quick paths for long arrays against the library: ids of all lengths, logprobs of all shapes,
 * with and without spaces, for two sizes of pieces. */
static void check_bulk(struct str text, const int32_t *want_ids, const float *want, size_t n)
{
    for (int half = 0; half < 2; half++) {
        struct feeder f = {.text = text, .step = half ? text.len / 2 + 3 : 0};
        struct json_scan s;
        struct json_ints ids = {0};
        struct json_floats lps = {0};
        struct err e = {0};
        int rc;

        json_scan_init(&s, 4096);
        if (want)
            rc = DRIVE(&f, &s, json_scan_triples(&s, 3, &lps, &ids, &e));
        else
            rc = DRIVE(&f, &s, json_scan_ints(&s, 3, &ids, &e));
        cr_assert_eq(rc, 1, "%s", e.text);
        cr_assert_eq(ids.n, n - 3);
        cr_assert_eq(memcmp(ids.at, want_ids + 3, ids.n * sizeof(*ids.at)), 0);
        if (want)
            cr_assert_eq(memcmp(lps.at, want + 3, lps.n * sizeof(*lps.at)), 0);
        vec_done(&ids);
        vec_done(&lps);
        json_scan_done(&s);
        free(f.piece);
    }
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

TEST(json_scan, long_arrays_are_read_exactly)
{
    enum { N = 20000 };

    static int32_t ids[N];
    static float lps[N];
    struct buf plain = {0}, triples = {0};
    uint64_t rng = 1;

    for (int space = 0; space < 2; space++) {
        buf_clear(&plain);
        buf_clear(&triples);
        for (int i = 0; i < N; i++) {
            char number[64];
            float value;

            rng = rng * 6364136223846793005u + 1442695040888963407u;
            ids[i] = (int32_t)((rng >> 33) >> (rng >> 28 & 31));
            value = -(float)(rng >> 40) / (float)(1u << (rng >> 20 & 31));
            write_number(number, sizeof(number), (double)value, (unsigned)(rng >> 58));
            lps[i] = strtof(number, NULL);
            buf_printf(&plain, "%s%d", i == 0 ? "[" : space ? ", " : ",", ids[i]);
            buf_printf(&triples, space ? "%s[%s, %d, null]" : "%s[%s,%d,null]",
                       i == 0  ? "["
                       : space ? ", "
                               : ",",
                       number, ids[i]);
        }
        buf_puts(&plain, "]");
        buf_puts(&triples, "]");
        check_bulk(buf_str(&plain), ids, NULL, N);
        check_bulk(buf_str(&triples), ids, lps, N);
    }
    buf_done(&plain);
    buf_done(&triples);
}
