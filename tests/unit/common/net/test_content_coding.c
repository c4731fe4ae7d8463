/* Bodies with a Content-Encoding: what is decoded, in which steps, and where decoding ends. */
#include "testing.h"

#include <zlib.h>

#include "common/net/content_coding.h"

enum { GZIP = MAX_WBITS + 16, ZLIB = MAX_WBITS, RAW = -MAX_WBITS };

/* Compresses the text. */
static struct buf coded(struct str text, int window)
{
    struct buf out = {0};
    z_stream z = {0};

    cr_assert_eq(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text.p; /* read only */
    z.avail_in = (uInt)text.len;
    z.next_out = (unsigned char *)buf_reserve(&out, deflateBound(&z, text.len));
    z.avail_out = (uInt)(out.cap - out.len);
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.len = z.total_out;
    (void)deflateEnd(&z);
    return out;
}

/* Decodes like content_decoder_step. *ret_steps counts the steps. */
static int decoded(enum content_coding coding, struct str from, size_t max, struct buf *out,
                   size_t *ret_steps, struct err *e)
{
    struct content_decoder *d = content_decoder_new(coding, from, max);
    int rc = 0;

    *e = (struct err){0};
    for (*ret_steps = 0; rc == 0; ++*ret_steps) {
        size_t before = out->len;

        rc = content_decoder_step(d, out, e);
        cr_assert_leq(out->len - before, (size_t)CODING_STEP);
    }
    content_decoder_free(d);
    return rc;
}

static struct buf letters(size_t n)
{
    struct buf b = {0};
    uint32_t x = 1;

    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        buf_add_c(&b, (char)('a' + (x >> 24) % 23));
    }
    return b;
}

TEST(content_coding, each_coding_gives_the_text_back_in_short_steps)
{
    static const struct {
        int window;
        enum content_coding coding;
    } all[] = {{GZIP, CODING_GZIP}, {ZLIB, CODING_DEFLATE}, {RAW, CODING_DEFLATE}};
    struct buf text = letters(300000);

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct buf from = coded(buf_str(&text), all[i].window), out = {0};
        struct err e;
        size_t steps;

        cr_assert_eq(decoded(all[i].coding, buf_str(&from), text.len, &out, &steps, &e), 1, "%s",
                     e.text);
        cr_assert(str_eq(buf_str(&out), buf_str(&text)));
        cr_assert_geq(steps, text.len / CODING_STEP);
        buf_done(&from);
        buf_done(&out);
    }
    buf_done(&text);
}

TEST(content_coding, several_members_are_one_text)
{
    struct buf one = coded(STR("one "), GZIP), two = coded(STR("two"), GZIP), out = {0};
    struct err e;
    size_t steps;

    buf_add_str(&one, buf_str(&two));
    cr_assert_eq(decoded(CODING_GZIP, buf_str(&one), 100, &out, &steps, &e), 1, "%s", e.text);
    cr_assert(str_eq_c(buf_str(&out), "one two"));
    buf_done(&one);
    buf_done(&two);
    buf_done(&out);
}

static void expect_refusal(enum content_coding coding, struct str from, size_t max,
                           enum err_kind kind, const char *words)
{
    struct buf out = {0};
    struct err e;
    size_t steps;

    cr_assert_eq(decoded(coding, from, max, &out, &steps, &e), -1, "%s", words);
    cr_expect_eq(e.kind, kind, "%s", e.text);
    cr_expect(strstr(e.text, words), "%s", e.text);
    buf_done(&out);
}

TEST(content_coding, what_is_wrong_is_said)
{
    struct buf text = letters(5000), from = coded(buf_str(&text), GZIP);
    struct buf zlib = coded(buf_str(&text), ZLIB), zeros = {0}, bomb;
    struct str whole = buf_str(&from);

    expect_refusal(CODING_GZIP, whole, 4999, ERR_BODY_TOO_LARGE, "more than 4999 bytes");
    for (size_t n = 0; n < whole.len; n += 97)
        expect_refusal(CODING_GZIP, str_sub(whole, 0, n), 1 << 20, ERR_INVALID, "ends early");
    expect_refusal(CODING_GZIP, STR("{\"plain\": 1}"), 1 << 20, ERR_INVALID, "no valid gzip");
    from.p[from.len - 6] ^= 1; /* damages the checksum */
    expect_refusal(CODING_GZIP, whole, 1 << 20, ERR_INVALID, "no valid gzip");
    buf_add_c(&zlib, 'x');
    expect_refusal(CODING_DEFLATE, buf_str(&zlib), 1 << 20, ERR_INVALID, "follow its end");
    for (size_t i = 0; i < (3 << 20); i++)
        buf_add_c(&zeros, '0');
    bomb = coded(buf_str(&zeros), GZIP);
    expect_refusal(CODING_GZIP, buf_str(&bomb), SIZE_MAX, ERR_BODY_TOO_LARGE, "256 times");
    buf_done(&text);
    buf_done(&from);
    buf_done(&zlib);
    buf_done(&zeros);
    buf_done(&bomb);
}

TEST(content_coding, the_header_is_a_list)
{
    static const struct {
        const char *value;
        enum content_coding coding;
    } all[] = {
        {"", CODING_IDENTITY},       {"identity", CODING_IDENTITY},  {" GZIP ", CODING_GZIP},
        {"x-gzip", CODING_GZIP},     {"deflate", CODING_DEFLATE},    {"zstd", CODING_UNKNOWN},
        {"br", CODING_UNKNOWN},      {"gzip, gzip", CODING_UNKNOWN}, {"identity,gzip", CODING_GZIP},
        {"gzip,br", CODING_UNKNOWN}, {",", CODING_IDENTITY}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        cr_expect_eq(content_coding_add(CODING_IDENTITY, str_cstr(all[i].value)), all[i].coding,
                     "%s", all[i].value);
    cr_expect_eq(content_coding_add(CODING_GZIP, STR("gzip")), CODING_UNKNOWN);
}
