/* Arriving requests: in pieces, long ones, several at once. Server and clients share one thread. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "common/serve/server.h"
#include "door.h"
#include "testing.h"

enum { PACKED_BODY = 12 << 20, LIMIT_MS = 10000 };

#define PLAIN "GET /a HTTP/1.1\r\nHost: h\r\n\r\n"

struct rig {
    struct loop *loop;
    struct server *server;
    struct door door;
    struct loop_timer looking;
    int n; /* number of requests */
    struct exchange *kept;
    size_t unfinished_bytes, largest_step; /* of a request: received; largest step */
};

static void count(struct rig *r)
{
    r->n++;
}

static void on_request(void *ctx, struct exchange *x)
{
    count(ctx);
    exchange_reply(x, 200, "text/plain", STR("x"));
}

static void on_unfinished(void *ctx, size_t bytes, bool refused)
{
    struct rig *r = ctx;

    cr_assert_not(refused);
    if (bytes > r->unfinished_bytes)
        r->largest_step = MAX_OF(r->largest_step, bytes - r->unfinished_bytes);
    r->unfinished_bytes = bytes;
}

static void rig_open(struct rig *r)
{
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN);
    r->loop = loop_new(&e);
    door_open(&r->door);
}

static void begin(struct rig *r, server_handler_fn handler, bool (*packs)(struct str line))
{
    struct server_options o = {.max_body_bytes = 1 << 20,
                               .max_connections = 16,
                               .packs = packs,
                               .on_unfinished = on_unfinished};
    struct err e;

    cr_assert_eq(server_new(r->loop, &o, handler, r, &r->server, &e), 0, "%s", e.text);
    server_listen(r->server, r->door.fd);
}

static void rig_close(struct rig *r)
{
    server_free(r->server);
    loop_free(r->loop);
    door_close(&r->door);
}

static void on_look(struct loop_timer *t)
{
    server_stop(CONTAINER_OF(t, struct rig, looking)->server);
}

/* Runs the server for a moment. */
static void look(struct rig *r)
{
    loop_timer_set(r->loop, &r->looking, 1, on_look);
    server_run(r->server);
}

static void wait_for(struct rig *r, int n)
{
    uint64_t limit_ms = clock_ms() + LIMIT_MS;

    while (r->n < n) {
        look(r);
        cr_assert(clock_ms() < limit_ms);
    }
    cr_assert_eq(r->n, n);
}

static void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static size_t body_seen, body_packed;

static char letter(size_t i)
{
    return (char)('a' + i % 23);
}

static void on_body(void *ctx, struct exchange *x)
{
    struct str body = exchange_closed_body(x);

    count(ctx);
    body_seen = body.len;
    for (size_t i = 0; i < body.len; i++)
        body_packed += body.p[i] != letter(i);
    body = exchange_body(x);
    for (size_t i = 0; i < body.len; i++)
        cr_assert_eq(body.p[i], letter(i));
    exchange_reply(x, 200, "text/plain", STR("x"));
}

/* Sends a request with a body of `size` letters in pieces, and checks its answer. */
static void come_whole(struct rig *r, size_t size)
{
    enum { PIECE = 100000 };

    uint64_t limit_ms = clock_ms() + LIMIT_MS;
    char *body = malloc(size);
    char head[128];
    size_t n = 0;
    int fd;

    for (size_t i = 0; i < size; i++)
        body[i] = letter(i);
    (void)snprintf(head, sizeof(head),
                   "POST /a?b HTTP/1.1\r\nHost: h\r\ncontent-LENGTH:  %zu\r\n\r\n", size);
    fd = door_connect(&r->door);
    say(fd, head);
    body_seen = body_packed = 0;
    while (n < size || body_seen == 0) {
        size_t piece = size - n < PIECE ? size - n : PIECE;
        ssize_t sent = n < size ? send(fd, body + n, piece, MSG_DONTWAIT) : 0;

        n += sent > 0 ? (size_t)sent : 0;
        look(r);
        cr_assert(clock_ms() < limit_ms);
    }
    cr_assert_eq(body_seen, size);
    close(fd);
    free(body);
}

/* Memory for the whole body is allocated when its first part has arrived. */
TEST_WITH(intake, a_long_body_comes_whole, rig)
{
    begin(f, on_body, NULL);
    come_whole(f, 900000);
    come_whole(f, 900000);
}

/* One server reads a short body, a body with memory allocated in advance, and one that is read
 * without libh2o. */
TEST_WITH(intake, bodies_of_all_lengths_come_whole, rig)
{
    begin(f, on_body, NULL);
    server_limit_bodies(f->server, 4 << 20, 0);
    come_whole(f, 10);
    come_whole(f, 3 << 20);
    come_whole(f, 40000);
    server_limit_bodies(f->server, 4 << 20, 100000); /* too little to allocate memory for a body */
    come_whole(f, 3 << 20);
    come_whole(f, 400000);
}

static bool packs(struct str request_line)
{
    cr_assert(str_eq_c(request_line, "POST /a?b HTTP/1.1"));
    return true;
}

TEST_WITH(intake, a_long_body_lies_packed_until_it_is_read, rig)
{
    begin(f, on_body, packs);
    server_limit_bodies(f->server, (size_t)2 * PACKED_BODY, 0);
    come_whole(f, PACKED_BODY);
    cr_assert_gt(body_packed, PACKED_BODY / 4);
    come_whole(f, 900000); /* too short for that */
    cr_assert_eq(body_packed, 0);
}

/* Returns the bytes of this process with a request for large pages. */
static size_t asked_large(void)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    unsigned long from = 0, to = 0;
    size_t n = 0;
    char line[512];

    cr_assert_not_null(f);
    while (fgets(line, sizeof(line), f)) {
        char *rest;
        unsigned long at = strtoul(line, &rest, 16);

        if (*rest == '-') {
            from = at;
            to = strtoul(rest + 1, NULL, 16);
        } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) {
            n += to - from;
        }
    }
    (void)fclose(f);
    return n;
}

static size_t large_meanwhile;

/* The request for large pages ends when the body is complete, because later data in that memory may
 * be small. */
TEST_WITH(intake, a_long_body_comes_into_large_pages, rig)
{
    const size_t size = (size_t)12 << 20;
    char *body = calloc(size + 1, 1);
    size_t before = asked_large(), n = 0;
    int fd;

    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        cr_skip_test("this kernel has no large pages");
    memset(body, ' ', size);
    begin(f, on_request, packs);
    server_limit_bodies(f->server, 2 * size, 0);
    fd = door_connect(&f->door);
    say(fd, "POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 12582912\r\n\r\n");
    while (f->n == 0) {
        ssize_t sent =
            n < size ? send(fd, body + n, MIN_OF(size - n, (size_t)100000), MSG_DONTWAIT) : 0;

        n += sent > 0 ? (size_t)sent : 0;
        look(f);
        large_meanwhile = MAX_OF(large_meanwhile, asked_large());
    }
    cr_expect_geq(large_meanwhile, before + ((size_t)8 << 20));
    cr_expect_eq(asked_large(), before);
    close(fd);
    free(body);
}

/* A read of the start of a request may also contain the next request, or half a line. */
TEST_WITH(intake, requests_come_in_one_piece_or_by_bytes, rig)
{
    static const char body[] = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    int fd;

    begin(f, on_request, NULL);
    fd = door_connect(&f->door);
    say(fd, PLAIN "\r\n" PLAIN "POST /a HTTP/1.1\r\nHost: h\r\n");
    wait_for(f, 2);
    say(fd, "Content-Length: 1\r\n\r\na");
    wait_for(f, 3);
    for (size_t i = 0; i < sizeof(body) - 1; i++) {
        cr_assert_eq(f->n, 3);
        cr_assert_eq(send(fd, body + i, 1, MSG_NOSIGNAL), 1);
        look(f);
    }
    wait_for(f, 4);
    close(fd);
}

static void keep(void *ctx, struct exchange *x)
{
    struct rig *r = ctx;

    count(r);
    r->kept = x;
}

/* The kernel reports new bytes once. These bytes arrive while they must not be read. */
TEST_WITH(intake, a_request_that_came_during_an_answer_is_found_after_it, rig)
{
    int fd;

    begin(f, keep, NULL);
    fd = door_connect(&f->door);
    say(fd, PLAIN);
    for (int i = 1; i < 5; i++) {
        wait_for(f, i);
        say(fd, PLAIN);
        look(f);
        cr_assert_eq(f->n, i, "one at a time");
        exchange_reply(f->kept, 200, "text/plain", STR("x"));
    }
    wait_for(f, 5);
    exchange_reply(f->kept, 200, "text/plain", STR("x"));
    look(f);
    close(fd);
}

/* If a read is full, the next request stays in the socket, and no event reports it. */
TEST_WITH(intake, a_request_behind_one_that_fills_a_read_is_found, rig)
{
    static const size_t wholes[] = {4096, 8192, 131072, 1 << 20};
    int n = 0;

    begin(f, on_request, NULL);
    server_limit_bodies(f->server, 4 << 20, 0);
    for (size_t i = 0; i < sizeof(wholes) / sizeof(wholes[0]); i++) {
        for (size_t whole = wholes[i] - 2; whole <= wholes[i] + 2; whole++) {
            uint64_t limit_ms = clock_ms() + LIMIT_MS;
            char *all = malloc(whole + sizeof(PLAIN));
            size_t len = whole + sizeof(PLAIN) - 1, sent = 0;
            int fd = door_connect(&f->door), head;

            memset(all, 'x', whole);
            head = snprintf(
                all, 128, "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %7zu\r\n\r\n",
                whole - strlen("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1234567\r\n\r\n"));
            all[head] = 'x';
            memcpy(all + whole, PLAIN, sizeof(PLAIN));
            while (sent < len) {
                ssize_t some = send(fd, all + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

                sent += some > 0 ? (size_t)some : 0;
                look(f);
                cr_assert(clock_ms() < limit_ms);
            }
            n += 2;
            wait_for(f, n);
            close(fd);
            free(all);
        }
    }
}

/* In a turn, only a piece is read of a body without a length, and of a long one, however many bytes
 * are in the socket. */
TEST(intake, no_turn_reads_all_that_a_peer_has_sent)
{
    enum { PIECE = 128 << 10, IN_SOCKET = 200 << 10, WHOLE = 3 << 20 };

    static const char *const heads[] = {
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n300000\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3145728\r\n\r\n"};
    static const char *const tails[] = {"\r\n0\r\n\r\n", ""};
    char *body = malloc(WHOLE + sizeof("\r\n0\r\n\r\n"));

    memset(body, 'x', WHOLE);
    for (int i = 0; i < 2; i++) {
        size_t whole = WHOLE + strlen(tails[i]);
        struct rig r = {0};
        uint64_t limit_ms = clock_ms() + LIMIT_MS;
        int size = IN_SOCKET * 2, fd;
        size_t sent = 0;

        rig_open(&r);
        begin(&r, on_request, NULL);
        server_limit_bodies(r.server, 4 << 20, 0);
        fd = door_connect(&r.door);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        memcpy(body + WHOLE, tails[i], strlen(tails[i]));
        say(fd, heads[i]);
        /* This thread is the only reader, so sends must not block. */
        while (sent < whole) {
            ssize_t some = send(fd, body + sent, whole - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

            if (some > 0)
                sent += (size_t)some;
            else
                look(&r);
            cr_assert(clock_ms() < limit_ms);
        }
        wait_for(&r, 1);
        cr_assert_leq(r.largest_step, PIECE);
        close(fd);
        rig_close(&r);
    }
    free(body);
}

static void on_left(void *ctx, bool delivered)
{
    cr_assert_not(delivered);
    count(ctx);
}

static void on_awaiting(void *ctx, struct exchange *x)
{
    exchange_watch(x, on_left, ctx);
}

/* Requests and their ends are reported at once without an answer. Each handler is notified of the
 * end. */
TEST_WITH(intake, peers_that_leave_with_their_request_are_told_of, rig)
{
    begin(f, on_awaiting, NULL);
    for (int i = 0; i < 3; i++) {
        int fd = door_connect(&f->door);

        say(fd, PLAIN);
        close(fd);
    }
    wait_for(f, 3);
}
