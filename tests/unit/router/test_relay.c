/* Exchanges over real sockets, one after the other. The test is the client and the worker. */
#include "common/base/clock.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "door.h"
#include "hub_kit.h"
#include "router/clients.h"
#include "router/hub.h"
#include "router/upstreams.h"
#include "testing.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 10000 };

#define GET "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"

struct fixture {
    struct config config;
    struct heritage heritage;
    struct hub hub;
    struct door door; /* socket of the worker */
    int client;       /* the test's end of the client's connection */
    int worker;       /* the test's end of the router's link; -1: none */
    char text[8192];
};

static void fixture_open(struct fixture *f)
{
    struct loop *l;
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN);
    *f = (struct fixture){.client = -1, .worker = -1};
    door_folder(&f->door);
    f->config.max_body_bytes = 1 << 20;
    f->config.max_header_bytes = 1 << 16;
    f->config.idle_timeout_ms = f->config.header_timeout_ms = f->config.body_timeout_ms =
        f->config.send_timeout_ms = 60000;
    f->heritage = (struct heritage){.config = &f->config,
                                    .board = board_new(),
                                    .run_dir = f->door.folder,
                                    .state_dir = f->door.folder};
    f->heritage.board->workers = 1;
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_READY;
    cr_assert_eq(heritage_socket_path(f->door.folder, 0, f->door.path, sizeof(f->door.path)), 0);
    door_listen(&f->door);
    l = loop_new(&e);
    hub_init(&f->hub, &f->heritage, l, upstreams_new(&f->heritage, l, &e));
    cr_assert_not_null(f->hub.upstreams, "%s", e.text);
    clients_init(&f->hub);
}

static void client_comes(struct fixture *f)
{
    int fds[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    f->client = fds[0];
    clients_add(&f->hub, fds[1], STR("10.0.0.1"));
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void fixture_close(struct fixture *f)
{
    close_hub(&f->hub, f->heritage.board);
    drop(&f->client);
    drop(&f->worker);
    door_close(&f->door);
}

static void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Runs the router until fd is readable or at its end. */
static void wait_for(struct fixture *f, int fd)
{
    uint64_t until_ms = clock_ms() + LIMIT_MS;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (poll(&p, 1, 0) == 0) {
        cr_assert_lt(clock_ms(), until_ms, "nothing comes");
        (void)loop_poll(f->hub.loop, 1);
    }
}

/* Reads until the text ends with `end`, or, if `end` is NULL, until the peer closes. */
static const char *hear(struct fixture *f, int fd, const char *end)
{
    size_t n = 0;
    ssize_t got = 1;

    f->text[0] = '\0';
    while (got > 0 && !(end && strstr(f->text, end))) {
        wait_for(f, fd);
        got = recv(fd, f->text + n, sizeof(f->text) - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        f->text[n] = '\0';
    }
    return f->text;
}

/* Reads the request up to `end`, on the router's link or a new one. */
static const char *worker_hears(struct fixture *f, const char *end)
{
    if (f->worker < 0) {
        wait_for(f, f->door.fd);
        f->worker = accept(f->door.fd, NULL, NULL);
        cr_assert_geq(f->worker, 0);
    }
    return hear(f, f->worker, end);
}

static void worker_closes(struct fixture *f)
{
    drop(&f->worker);
}

/* Connects a client whose request's head the worker has read. */
static void ask_plain(struct fixture *f)
{
    client_comes(f);
    say(f->client, GET);
    worker_hears(f, "\r\n\r\n");
}

TEST_WITH(relay, requests_share_a_link_and_hop_by_hop_lines_end, fixture)
{
    client_comes(f);
    for (int i = 0; i < 3; i++) {
        const char *heard;

        say(f->client,
            "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: x-hop\r\nx-hop: 1\r\n"
            "x-end: 2\r\n\r\n");
        heard = worker_hears(f, "\r\n\r\n");
        cr_assert(strstr(heard, "GET /v1/models HTTP/1.1\r\n") && strstr(heard, "x-end: 2\r\n"));
        cr_assert_null(strstr(heard, "x-hop"));
        say(f->worker, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
        heard = hear(f, f->client, "\r\n\r\nyes");
        cr_assert(strstr(heard, "HTTP/1.1 200 OK\r\n") == heard, "%s", heard);
        hear(f, f->worker, "\r\n"); /* the answer is confirmed */
        cr_assert_str_eq(f->text, "\r\n");
    }
    cr_assert_eq(upstreams_idle(f->hub.upstreams), 1u);
}

/* The worker reported that it retires and closed the link: it has not acted. This is repeated once
 * only. */
TEST_WITH(relay, what_cannot_have_been_acted_on_is_sent_again_once, fixture)
{
    ask_plain(f);
    say(f->worker, "HTTP/1.1 199 Retiring\r\n\r\n");
    worker_closes(f);
    cr_assert(strstr(worker_hears(f, "\r\n\r\n"), "GET /v1/models"));
    say(f->worker, "HTTP/1.1 199 Retiring\r\n\r\n");
    worker_closes(f);
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 503 ") == f->text, "%s", f->text);
}

TEST_WITH(relay, a_worker_that_may_have_acted_is_not_asked_again, fixture)
{
    ask_plain(f);
    worker_closes(f);
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 503 ") == f->text, "%s", f->text);
}

TEST_WITH(relay, an_answer_that_breaks_off_has_no_end, fixture)
{
    ask_plain(f);
    say(f->worker, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    hear(f, f->client, "abc");
    worker_closes(f);
    hear(f, f->client, NULL); /* reads until the connection ends */
    cr_assert_null(strstr(f->text, "0\r\n\r\n"));
}

TEST_WITH(relay, a_malformed_answer_is_the_workers_fault, fixture)
{
    ask_plain(f);
    say(f->worker, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab");
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 502 ") == f->text && strstr(f->text, "worker_invalid"),
              "%s", f->text);
    say(f->client, GET); /* the connection continues, on a new link */
    worker_closes(f);
    worker_hears(f, "\r\n\r\n");
}

/* A malformed body gets 400, and the worker, which has read a part, loses the connection. */
TEST_WITH(relay, a_bad_body_ends_both_sides, fixture)
{
    client_comes(f);
    say(f->client, "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3\r\nabc\r\n");
    worker_hears(f, "abc");
    say(f->client, "zz\r\n");
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 400 ") == f->text, "%s", f->text);
    hear(f, f->worker, NULL);
}

TEST_WITH(relay, a_client_that_leaves_takes_its_link_along, fixture)
{
    ask_plain(f);
    drop(&f->client);
    hear(f, f->worker, NULL); /* reads the end */
    cr_assert_eq(f->hub.conn_count, 0u);
}
