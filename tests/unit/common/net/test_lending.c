#include "common/net/lending.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/net/http1.h"
#include "testing.h"

#define HEAD "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nX: y\r\n\r\n"

/* Reports whether connections with such heads may be lent. */
static bool plain(const char *text)
{
    static struct http1_head h;
    struct str head;
    size_t at;

    cr_assert(http1_request(&h, str_cstr(text), 0, 65536, NULL) == 1, "%s", text);
    return lending_plain(&h, &head, &at);
}

TEST(lending, what_is_for_one_hop_only_is_not_lent_for)
{
    static const char *const lines[] = {
        "Connection: close", "Connection: x", "Connection: keep-alive, x", "TE: trailers",
        "Trailer: x",        "Upgrade: h2c",  "Expect: 100-continue",      "rollgate-confirms: 1"};

    cr_assert(plain(HEAD), "a plain one");
    cr_assert(
        plain("POST / HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n"
              "Content-Length: 1\r\n\r\n"),
        "one that is kept");
    cr_assert(!plain("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "no body");
    cr_assert(!plain("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n"),
              "1.0");
    cr_assert(!plain("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"), "chunks");
    cr_assert(!plain("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 01\r\n\r\n"), "an odd length");
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct buf b = {0};

        buf_printf(&b, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 1\r\n\r\n%c", lines[i],
                   0);
        cr_assert(!plain(b.p), "%s", lines[i]);
        buf_done(&b);
    }
}

/* Compares a head. Returns -1 if it differs, 0 while it is incomplete, else its length. */
static long match(const char *in)
{
    struct str head = STR(HEAD);
    size_t at = str_find(head, STR("12\r\n"), 0), whole;

    return lending_matches(head, at, str_cstr(in), &whole) ? (long)whole : -1;
}

TEST(lending, only_the_length_may_differ)
{
    struct str head = STR(HEAD);

    cr_assert(match(HEAD) == (long)head.len + 12, "%ld", match(HEAD));
    cr_assert(match("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX: "
                    "y\r\n\r\nabc") == (long)head.len - 1 + 3,
              "a shorter one");
    cr_assert(
        match(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX: z\r\n\r\n") ==
            -1,
        "another header");
    cr_assert(
        match(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: \r\nX: y\r\n\r\n") ==
            -1,
        "no digits");
    cr_assert(match("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\nX: "
                    "y\r\n\r\n") == -1,
              "a sign");
    cr_assert(match("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 03\r\nX: "
                    "y\r\n\r\n") == -1,
              "a zero before");
    cr_assert(
        match("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\nX: "
              "y\r\n\r\n") == (long)head.len + 6 + 67108864,
        "a long one");
    cr_assert(match("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
                    "1000000000000000\r\nX: y\r\n\r\n") == -1,
              "a length that no request has");
    cr_assert(match("GET /") == -1, "another method");
    for (size_t n = 0; n < head.len; n++) {
        char *part = mem_strndup(head.p, n);

        cr_assert(match(part) == 0, "%zu bytes: %ld", n, match(part));
        free(part);
    }
}

TEST(lending, a_channel_carries_messages_and_descriptors)
{
    struct lending_message m = {.kind = LENDING_GIVE, .slot = 7, .length_at = 3}, got;
    char *room = mem_alloc(LENDING_MESSAGE_MAX);
    struct lending_channel c;
    struct str bytes;
    struct err e;
    int fd, pair[2];

    cr_assert(lending_open(&c, &e) == 0, "%s", e.text);
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair");
    cr_assert(lending_receive(c.fd_of_worker, room, &got, &bytes, &fd) == -1, "nothing came");
    cr_assert(lending_send(c.fd, &m, STR("a head"), pair[0]) == 0, "sent");
    cr_assert(lending_receive(c.fd_of_worker, room, &got, &bytes, &fd) == 1, "came");
    cr_assert(got.kind == m.kind && got.slot == 7 && got.length_at == 3, "the message");
    cr_assert(str_eq(bytes, STR("a head")) && fd >= 0 && fd != pair[0], "its bytes and descriptor");
    cr_assert(write(fd, "x", 1) == 1 && read(pair[1], room, 1) == 1, "it is the same socket");
    close(fd);

    m.slot = LENDING_SLOTS;
    cr_assert(lending_send(c.fd, &m, STR(""), -1) == 0, "sent");
    cr_assert(lending_receive(c.fd_of_worker, room, &got, &bytes, &fd) == 0, "no such slot");
    close(c.fd);
    cr_assert(lending_receive(c.fd_of_worker, room, &got, &bytes, &fd) == 0,
              "the other one has ended");
    close(c.fd_of_worker);
    close(c.page_fd);
    lending_unmap(c.page);
    close(pair[0]);
    close(pair[1]);
    free(room);
}

TEST(lending, a_link_introduces_a_channel)
{
    struct lending_page *page;
    struct lending_channel c;
    int pair[2], fds[2];
    char in[64];
    struct err e;
    ssize_t n;

    cr_assert(lending_open(&c, &e) == 0, "%s", e.text);
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair");
    cr_assert(lending_introduce(pair[0], &c) == 0, "introduced");
    n = lending_first_read(pair[1], in, sizeof(in), fds);
    cr_assert(n > 0 && str_eq(str_of(in, (size_t)n), STR(LENDING_OPENS)), "the words");
    cr_assert(fds[0] >= 0 && fds[1] >= 0, "both descriptors");
    page = lending_map(fds[1], &e);
    cr_assert(page != NULL, "%s", e.text);
    atomic_store(&page->state[5], LENDING_ASKED);
    cr_assert(atomic_load(&c.page->state[5]) == LENDING_ASKED, "the page is shared");
    cr_assert(write(pair[0], "GET", 3) == 3, "written");
    cr_assert(lending_first_read(pair[1], in, sizeof(in), fds + 0) == 3 && fds[0] == -1 &&
                  fds[1] == -1,
              "without descriptors");
    lending_unmap(page);
    lending_unmap(c.page);
    for (int i = 0; i < 2; i++)
        close(pair[i]);
    close(c.fd);
    close(c.fd_of_worker);
    close(c.page_fd);
}
