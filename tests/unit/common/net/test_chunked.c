#include "common/net/chunked.h"

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "testing.h"

/* Extracts the payload of a run that the scan has passed. */
static int read_payload(struct chunked *c, struct str in, struct buf *data)
{
    int r = 0;

    while (r == 0 && in.len > 0) {
        struct chunked_run run;

        r = chunked_next(c, in, &run, NULL);
        if (run.kind == CHUNKED_DATA)
            buf_add(data, in.p, run.len_bytes);
        in = str_sub(in, run.len_bytes, in.len);
    }
    return r;
}

/* Feeds `text` in pieces of `piece` bytes. Bytes that the scan leaves are fed with the next piece.
 * Collects passed bytes and payload. Returns the result of the last call, and sets *ret_rest to the
 * bytes that were not consumed. */
static int feed(const char *text, size_t len, size_t piece, struct buf *pass, struct buf *data,
                size_t *ret_rest)
{
    struct chunked scan = {0}, read = {0};
    size_t at = 0, end = 0;
    int r = 0;

    while (r == 0 && end < len) {
        size_t used;

        end = len - end < piece ? len : end + piece;
        do {
            size_t passed;

            r = chunked_scan(&scan, str_of(text + at, end - at), &used, &passed, NULL);
            if (r < 0)
                break;
            buf_add(pass, text + at, passed);
            cr_assert_eq(read_payload(&read, str_of(text + at, used), data), r);
            at += used;
        } while (r == 0 && used > 0 && at < end);
    }
    *ret_rest = len - at;
    return r;
}

static const struct {
    const char *text, *pass, *data;
    size_t rest;
} good[] = {
    {"0\r\n\r\n", "0\r\n\r\n", "", 0},
    {"5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "hello", 0},
    {"00005;a=b; c=\"d e\"\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\nGET",
     "00005;a=b; c=\"d e\"\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\n", "hello0123456789", 3},
    {"1\r\n\n\r\n0\r\nX-T: 1\r\nContent-Length:9\r\n\r\nrest", "1\r\n\n\r\n0\r\n\r\n", "\n", 4},
    {"0;x\r\nY: \r\n\r\n", "0;x\r\n\r\n", "", 0},
};

TEST(chunked, good_ones_in_pieces_of_every_size)
{
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        for (size_t piece = 1; piece <= strlen(good[i].text); piece++) {
            struct buf pass = {0}, data = {0};
            size_t rest;

            cr_assert_eq(feed(good[i].text, strlen(good[i].text), piece, &pass, &data, &rest), 1,
                         "case %zu piece %zu", i, piece);
            cr_assert(str_eq_c(buf_str(&pass), good[i].pass), "case %zu piece %zu", i, piece);
            cr_assert(str_eq_c(buf_str(&data), good[i].data), "case %zu piece %zu", i, piece);
            if (piece == strlen(good[i].text))
                cr_assert_eq(rest, good[i].rest);
            buf_done(&pass);
            buf_done(&data);
        }
}

static const char *const bad[] = {
    "\r\n",
    ";a\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "5 ;a\r\nhello\r\n0\r\n\r\n",
    "5\t\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "g\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhelloXX0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n0\n\r\n",
    "5;a\nhello\r\n0\r\n\r\n",
    "5;a\x01\r\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "1234567890123456\r\n",
    "0000000000000001\r\nh\r\n0\r\n\r\n",
    "0\r\n X: 1\r\n\r\n",
    "0\r\n: 1\r\n\r\n",
    "0\r\nX : 1\r\n\r\n",
    "0\r\nX: 1\n\r\n",
    "0\r\nX: 1\r\r\n\r\n",
    "0\r\nX: \x02\r\n\r\n",
    "0\r\nX: 1\r\n\rX",
};

TEST(chunked, bad_ones_in_pieces_of_every_size)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        for (size_t piece = 1; piece <= strlen(bad[i]); piece++) {
            struct buf pass = {0}, data = {0};
            size_t rest;

            cr_assert_eq(feed(bad[i], strlen(bad[i]), piece, &pass, &data, &rest), -1, "case %zu",
                         i);
            buf_done(&pass);
            buf_done(&data);
        }
}

static int feed_repeated(const char *head, char fill, size_t n)
{
    struct buf in = {0}, pass = {0}, data = {0};
    size_t rest;
    int r;

    buf_puts(&in, head);
    memset(buf_reserve(&in, n), fill, n);
    in.len += n;
    r = feed(in.p, in.len, 1000, &pass, &data, &rest);
    buf_done(&in);
    buf_done(&pass);
    buf_done(&data);
    return r;
}

TEST(chunked, long_extensions_and_trailers_are_refused)
{
    cr_assert_eq(feed_repeated("5;", 'a', 4000), 0);
    cr_assert_eq(feed_repeated("5;", 'a', 5000), -1);
    cr_assert_eq(feed_repeated("0\r\nX:", 'a', 8000), 0);
    cr_assert_eq(feed_repeated("0\r\nX:", 'a', 9000), -1);
}

TEST(chunked, no_part_of_a_size_line_is_passed)
{
    struct chunked c = {0};
    size_t used, pass;

    cr_assert_eq(chunked_scan(&c, STR("1\r\nx\r\n5;a=b\r"), &used, &pass, NULL), 0);
    cr_assert_eq(used, 6);
    cr_assert_eq(pass, 6);
    cr_assert_eq(chunked_scan(&c, STR("5;a=b\r"), &used, &pass, NULL), 0);
    cr_assert_eq(used, 0);
    cr_assert_eq(chunked_scan(&c, STR("5;a=b\r\n"), &used, &pass, NULL), 0);
    cr_assert_eq(pass, 7);
}

TEST(chunked, the_announced_total_is_known_before_the_data)
{
    struct chunked c = {0};
    size_t used, pass;

    cr_assert_eq(chunked_scan(&c, STR("fffffffffffffff\r\n"), &used, &pass, NULL), 0);
    cr_assert_eq(c.total_bytes, 0xfffffffffffffffull);
}
