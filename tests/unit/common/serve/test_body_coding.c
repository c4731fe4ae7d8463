/* Bodies with a Content-Encoding, as a handler receives them. */
#include "exchange_kit.h"

#include <zlib.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { MIB = 1 << 20, LONG_TEXT = 3 * MIB };

/* Makes a text that compresses to about a sixtieth. */
static struct buf long_text(void)
{
    struct buf b = {0};
    uint32_t x = 1;

    for (size_t i = 0; i < LONG_TEXT; i++) {
        x = x * 1664525 + 1013904223;
        buf_add_c(&b, i % 200 ? (char)('a' + i % 23) : (char)('a' + (x >> 24) % 23));
    }
    return b;
}

/* Makes a request with the text as its gzip body. */
static struct buf request(struct str text)
{
    struct buf body = {0}, all = {0};
    z_stream z = {0};

    cr_assert_eq(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text.p; /* read only */
    z.avail_in = (uInt)text.len;
    z.next_out = (unsigned char *)buf_reserve(&body, deflateBound(&z, text.len));
    z.avail_out = (uInt)body.cap;
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    body.len = z.total_out;
    (void)deflateEnd(&z);
    buf_printf(
        &all,
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
        body.len);
    buf_add_str(&all, buf_str(&body));
    buf_done(&body);
    return all;
}

static int send_to(const struct fixture *f, struct str bytes)
{
    int fd = door_connect(&f->door);

    cr_assert_eq(send(fd, bytes.p, bytes.len, MSG_NOSIGNAL), (ssize_t)bytes.len);
    return fd;
}

static bool both_came(const struct fixture *f)
{
    return f->n == 2;
}

static bool both_closed(const struct fixture *f)
{
    return f->closed == 2;
}

static void begin(struct fixture *f, size_t max_bytes, int fds[2], const struct buf *text)
{
    struct buf r = request(buf_str(text));

    open_all(f);
    server_limit_bodies(f->server, 4 * MIB, max_bytes);
    fds[0] = send_to(f, buf_str(&r));
    fds[1] = send_to(f, buf_str(&r));
    run_until(f, both_came);
    buf_done(&r);
}

static void end(struct fixture *f, const int fds[2])
{
    for (int i = 0; i < 2; i++)
        exchange_reply(f->x[i], 200, "text/plain", STR("x"));
    run_until(f, both_closed);
    cr_expect_eq(server_bytes(f->server).bodies, 0u, "all is given back");
    for (int i = 0; i < 2; i++)
        (void)close(fds[i]);
}

TEST_WITH(body_coding, bodies_of_several_are_decoded_whole, fixture)
{
    struct buf text = long_text();
    int fds[2];

    begin(f, 0, fds, &text);
    for (int i = 0; i < 2; i++) {
        cr_expect_null(exchange_body_error(f->x[i]));
        cr_expect(str_eq(exchange_body(f->x[i]), buf_str(&text)));
    }
    cr_expect_geq(server_bytes(f->server).bodies, 2u * LONG_TEXT);
    end(f, fds);
    buf_done(&text);
}

/* Each body is within the limit, but both together are not. */
TEST_WITH(body_coding, what_is_decoded_at_once_is_limited, fixture)
{
    struct buf text = long_text();
    const struct err *e[2];
    int fds[2];

    begin(f, 4 * MIB, fds, &text);
    e[0] = exchange_body_error(f->x[0]);
    e[1] = exchange_body_error(f->x[1]);
    cr_expect((e[0] != NULL) != (e[1] != NULL), "one of them is refused");
    for (int i = 0; i < 2; i++) {
        cr_expect(!e[i] || e[i]->kind == ERR_OVERLOADED);
        cr_expect_eq(exchange_body(f->x[i]).len, e[i] ? 0u : LONG_TEXT);
    }
    end(f, fds);
    buf_done(&text);
}

/* The peer leaves before the handler is called. */
TEST_WITH(body_coding, a_peer_that_leaves_ends_the_decoding, fixture)
{
    struct buf text = long_text(), r = request(buf_str(&text));
    uint64_t limit_ms;

    open_all(f);
    server_limit_bodies(f->server, 4 * MIB, 0);
    (void)close(send_to(f, buf_str(&r)));
    limit_ms = clock_ms() + LIMIT_MS;
    do {
        run_until(f, always);
        cr_assert_lt(clock_ms(), limit_ms);
    } while (server_busy(f->server) > 0 || f->n > f->closed);
    cr_expect_eq(server_bytes(f->server).bodies, 0u);
    buf_done(&text);
    buf_done(&r);
}
