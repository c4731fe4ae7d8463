#include "common/fleet/resp.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "testing.h"

/* Prints a reply as text: "[a 7 (null) !ERR]". */
static void print_reply(const struct resp *r, struct buf *out)
{
    static const char *const marks[] = {"(null)", "+", "!", ":", "", "["};

    buf_puts(out, marks[r->kind]);
    if (r->kind == RESP_INTEGER)
        buf_add_i64(out, r->number);
    buf_add_str(out, r->text);
    for (size_t i = 0; i < r->n; i++) {
        if (i > 0)
            buf_add_c(out, ' ');
        print_reply(&r->items[i], out);
    }
    if (r->kind == RESP_ARRAY)
        buf_add_c(out, ']');
}

/* Reads all replies of a stream that arrives `step` bytes at a time. Returns the last verdict. */
static int read_stream(struct str text, size_t step, struct buf *out, struct err *e)
{
    struct resp_scan scan = {0};
    struct buf in = {0};
    struct arena a = {0};
    int rc = 0;

    for (size_t at = 0; at < text.len && rc >= 0; at += step) {
        buf_add_str(&in, str_sub(text, at, step));
        while (in.len > 0 && (rc = resp_scan_reply(&scan, buf_str(&in), e)) > 0) {
            char *exact = malloc(scan.at); /* sanitizers detect a read after the end */

            memcpy(exact, in.p, scan.at);
            print_reply(resp_read(&a, str_of(exact, scan.at)), out);
            buf_add_c(out, ';');
            free(exact);
            buf_consume(&in, scan.at);
            scan = (struct resp_scan){0};
        }
    }
    rc = rc < 0 ? rc : in.len > 0 ? 0 : 1;
    buf_done(&in);
    arena_done(&a);
    return rc;
}

static void assert_replies(const char *text, const char *want)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        struct buf got = {0};
        struct err e = {0};

        cr_assert_eq(read_stream(str_cstr(text), step, &got, &e), 1, "%s", e.text);
        cr_assert(str_eq_c(buf_str(&got), want), "by %zu: %.*s", step, (int)got.len, got.p);
        buf_done(&got);
    }
}

static void assert_bytes_refused(struct str text, const char *why)
{
    struct buf got = {0};
    struct err e = {0};

    cr_assert_eq(read_stream(text, text.len, &got, &e), -1, "%.*s", (int)text.len, text.p);
    cr_assert(strstr(e.text, why), "%.*s: %s", (int)text.len, text.p, e.text);
    buf_done(&got);
}

static void assert_refused(const char *text, const char *why)
{
    assert_bytes_refused(str_cstr(text), why);
}

TEST(resp, every_kind_of_reply_is_read_however_it_is_cut)
{
    assert_replies("+OK\r\n:-7\r\n-ERR no\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n",
                   "+OK;:-7;!ERR no;a\r\n;(null);(null);");
    assert_replies("*3\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n$0\r\n\r\n+x\r\n", "[a [:1 []] ];+x;");
    assert_replies("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "[[[[[[[[:1]]]]]]]];");
}

TEST(resp, bytes_that_are_no_reply_are_refused)
{
    struct buf line = {0};

    assert_refused("x\r\n", "neither a status");
    assert_bytes_refused(STR("\0"
                             "1\r\n"),
                         "neither a status");
    assert_bytes_refused(STR("*3\r\n\0"
                             "1152921504606846976\r\n:1\r\n:2\r\n"),
                         "neither a status");
    assert_refused("\r\n", "CR LF");
    assert_refused("+OK\n", "CR LF");
    assert_refused(":1a\r\n", "neither a status");
    assert_refused("$-2\r\n", "bulk is below -1");
    assert_refused("$999999999999\r\n", "bulk is below -1");
    assert_refused("$1\r\nab\r\n", "does not end with its length");
    assert_refused("*-2\r\n", "array is below -1");
    assert_refused("*1048577\r\n", "array is below -1");
    assert_refused("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "nested");
    for (size_t i = 0; i < RESP_LINE_MAX + 8; i++)
        buf_add_c(&line, '+');
    buf_add_c(&line, 0);
    assert_refused(line.p, "4096 bytes");
    buf_done(&line);
}

TEST(resp, more_items_than_the_limit_are_refused_before_they_are_stored)
{
    struct buf text = {0};
    struct resp_scan scan = {0};
    struct err e = {0};

    buf_puts(&text, "*2\r\n*1048576\r\n");
    for (size_t i = 0; i < RESP_ITEMS_MAX; i++)
        buf_puts(&text, ":1\r\n");
    cr_assert_eq(resp_scan_reply(&scan, buf_str(&text), &e), -1);
    buf_done(&text);
}

TEST(resp, items_are_asked_for_by_kind)
{
    struct arena a = {0};
    const struct resp *r = resp_read(&a, STR("*4\r\n:5\r\n$2\r\n17\r\n:-1\r\n$1\r\nx\r\n"));

    cr_assert(resp_has_items(r, 4) && !resp_has_items(r, 5));
    cr_assert_eq(resp_number(r, 0, 9), 5);
    cr_assert_eq(resp_number(r, 1, 9), 17);
    cr_assert_eq(resp_number(r, 2, 9), 9);
    cr_assert_eq(resp_number(r, 3, 9), 9);
    cr_assert_eq(resp_number(r, 4, 9), 9);
    cr_assert(str_eq_c(resp_text(r, 1), "17") && !resp_text(r, 4).p);
    arena_done(&a);
}

TEST(resp, a_command_is_an_array_of_bulks)
{
    struct buf out = {0};

    resp_begin_command(&out, 3);
    resp_add_word(&out, STR("SET"));
    resp_add_word(&out, STR("a\r\nb"));
    resp_add_number(&out, UINT64_MAX);
    cr_assert(str_eq(buf_str(&out),
                     STR("*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$20\r\n18446744073709551615\r\n")));
    buf_done(&out);
}
