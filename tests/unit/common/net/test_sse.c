#include "common/net/sse.h"

#include <stdlib.h>

#include "common/base/buf.h"
#include "testing.h"

/* Prints "name|data;" for each event, with pieces of `step` bytes. */
static int events(struct str text, size_t step, struct buf *out)
{
    struct sse s = {.max_event = 40};
    struct buf data = {0};
    struct str run;
    struct err e;
    int rc = 0;

    buf_clear(out);
    for (size_t at = 0; at < text.len && rc >= 0; at += step) {
        struct str piece = str_sub(text, at, step);
        char *copy = malloc(piece.len);
        struct str in = {copy, piece.len};

        memcpy(copy, piece.p, piece.len);
        while ((rc = sse_next(&s, &in, &run, &e)) > 0) {
            if (rc == SSE_DATA) {
                buf_add_str(&data, run);
            } else {
                buf_puts(out, s.name);
                buf_add_c(out, '|');
                buf_add_str(out, buf_str(&data));
                buf_add_c(out, ';');
                buf_clear(&data);
            }
        }
        free(copy);
    }
    buf_done(&data);
    return rc;
}

static void assert_events(const char *text, const char *want)
{
    struct buf got = {0};

    for (size_t step = 1; step <= strlen(text); step++) {
        cr_assert_eq(events(str_cstr(text), step, &got), 0);
        cr_assert(str_eq_c(buf_str(&got), want), "%s by %zu: %.*s", text, step, (int)got.len,
                  got.p);
    }
    buf_done(&got);
}

TEST(sse, events_however_cut)
{
    assert_events("data: a\n\ndata: b\n\n", "|a;|b;");
    assert_events("data: a\r\n\r\ndata: b\r\rdata:c\n\n", "|a;|b;|c;");
    assert_events("data:  two\n\n", "| two;");
    assert_events("data: a\ndata: b\ndata:\ndata\n\n", "|a\nb\n;");
    assert_events("event: ping\ndata: {}\n\ndata: x\n\n", "ping|{};|x;");
    assert_events("event: a\nevent: b\ndata: x\n\n", "b|x;");
    assert_events(": comment\nid: 7\nretry: 9\ndatax: no\nda: no\nlongfieldname: no\ndata: x\n\n",
                  "|x;");
    assert_events("\n\n\nevent: lost\n\ndata: x\n\n", "|x;");
    assert_events("data\n\n", "|;");
    assert_events("\xef\xbb\xbf"
                  "data: x\n\n",
                  "|x;");
    assert_events("\xef\xbb"
                  "data: x\n\ndata: y\n\n",
                  "|y;");
    assert_events("data: unfinished\n", "");
    assert_events("data: a:b: c\n\n", "|a:b: c;");
}

TEST(sse, a_large_event_is_refused)
{
    struct buf got = {0};

    cr_assert_eq(events(STR("data: 0123456789012345678901234567890123456789\n\n"), 7, &got), 0);
    cr_assert_eq(
        events(STR("data: 01234567890123456789\ndata: 012345678901234567890\n\n"), 7, &got), -1);
    buf_done(&got);
}
