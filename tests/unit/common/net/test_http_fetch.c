#include "common/net/http_fetch.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "door.h"
#include "testing.h"

/* A server on the client's own loop, which reads once and sends `says`. */
struct fixture {
    struct loop *loop;
    struct http_client *client;
    struct list_head among;
    struct door door;
    int conn_fd;
    struct loop_io listener, conn;
    const char *says;
    char heard[4096];
    int answers;                  /* number of callbacks */
    int status;                   /* of the last one */
    char body[256], why[1024];    /* of the last one */
    struct http_fetch *to_cancel; /* fetch that the next answer cancels */
};

static void on_request(struct loop_io *io, unsigned events)
{
    struct fixture *f = CONTAINER_OF(io, struct fixture, conn);
    ssize_t n = recv(f->conn_fd, f->heard, sizeof(f->heard) - 1, MSG_DONTWAIT);

    (void)events;
    if (n <= 0)
        return;
    f->heard[n] = '\0';
    cr_assert_eq(send(f->conn_fd, f->says, strlen(f->says), MSG_NOSIGNAL),
                 (ssize_t)strlen(f->says));
}

static void on_connection(struct loop_io *io, unsigned events)
{
    struct fixture *f = CONTAINER_OF(io, struct fixture, listener);
    struct err e;

    (void)events;
    f->conn_fd = accept(f->door.fd, NULL, NULL);
    cr_assert_geq(f->conn_fd, 0);
    cr_assert_eq(loop_add(f->loop, &f->conn, f->conn_fd, LOOP_IN | LOOP_LEVEL, on_request, &e), 0);
}

static void open_all(struct fixture *f, const char *says)
{
    struct http_client_options o = {0};
    char url[128];
    struct err e;

    *f = (struct fixture){.says = says, .conn_fd = -1};
    door_open(&f->door);
    f->loop = loop_new(&e);
    cr_assert_eq(
        loop_add(f->loop, &f->listener, f->door.fd, LOOP_IN | LOOP_LEVEL, on_connection, &e), 0);
    (void)snprintf(url, sizeof(url), "unix:%s", f->door.path);
    cr_assert_eq(http_client_new(f->loop, url, &o, &f->client, &e), 0, "%s", e.text);
}

static void close_all(struct fixture *f)
{
    http_client_free(f->client);
    loop_del(f->loop, &f->listener);
    loop_del(f->loop, &f->conn);
    loop_free(f->loop);
    if (f->conn_fd >= 0)
        close(f->conn_fd);
    door_close(&f->door);
}

static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct fixture *f = ctx;

    f->answers++;
    f->status = status;
    (void)snprintf(f->body, sizeof(f->body), "%.*s", (int)body.len, body.len ? body.p : "");
    (void)snprintf(f->why, sizeof(f->why), "%s", status ? "" : e->text);
    http_fetch_cancel(f->to_cancel);
    f->to_cancel = NULL;
    loop_stop(f->loop);
}

static struct http_fetch *ask(struct fixture *f)
{
    struct http_request r = {.method = "POST",
                             .path = STR("/a"),
                             .headers = STR("X-One: 1\r\n"),
                             .total_timeout_ms = 5000};

    return http_fetch(f->client, &r, &f->among, on_answer, f);
}

TEST(http_fetch, holds_the_whole_answer)
{
    struct fixture f;

    open_all(&f, "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    (void)ask(&f);
    cr_assert_eq(f.answers, 0, "never from inside");
    cr_assert_not(list_is_empty(&f.among));
    loop_run(f.loop);
    cr_assert_eq(f.answers, 1);
    cr_assert_eq(f.status, 404);
    cr_assert_str_eq(f.body, "abcde");
    cr_assert(strstr(f.heard, "POST /a HTTP/1.1\r\n") == f.heard &&
              strstr(f.heard, "X-One: 1\r\n"));
    cr_assert(list_is_empty(&f.among), "it is over");
    close_all(&f);
}

TEST(http_fetch, tells_why_there_is_no_answer)
{
    struct fixture f;

    open_all(&f, "this is no HTTP\r\n\r\n");
    (void)ask(&f);
    loop_run(f.loop);
    cr_assert_eq(f.answers, 1);
    cr_assert_eq(f.status, 0);
    cr_assert_neq(f.why[0], '\0');
    close_all(&f);
}

TEST(http_fetch, a_refused_one_hears_it_from_the_loop)
{
    struct err why;
    struct fixture f;

    open_all(&f, "");
    (void)err_set(&why, ERR_WORKER_UNAVAILABLE, "nobody is there");
    (void)http_fetch_refused(f.loop, &why, &f.among, on_answer, &f);
    cr_assert_eq(f.answers, 0, "never from inside");
    http_fetch_cancel(http_fetch_refused(f.loop, &why, &f.among, on_answer, &f));
    loop_run(f.loop);
    cr_assert_eq(f.answers, 1, "the cancelled one says nothing");
    cr_assert_eq(f.status, 0);
    cr_assert_str_eq(f.why, "nobody is there");
    cr_assert(list_is_empty(&f.among));
    close_all(&f);
}

TEST(http_fetch, all_end_together)
{
    struct err why;
    struct fixture f;

    open_all(&f, "");
    (void)err_set(&why, ERR_WORKER_UNAVAILABLE, "the end");
    (void)ask(&f);
    f.to_cancel = ask(&f); /* the end of the first fetch cancels the second one */
    (void)http_fetch_refused(f.loop, &why, &f.among, on_answer, &f);
    http_fetches_end(&f.among, &why);
    cr_assert_eq(f.answers, 2);
    cr_assert_eq(f.status, 0);
    cr_assert_str_eq(f.why, "the end");
    (void)ask(&f);
    http_fetches_end(&f.among, NULL);
    cr_assert_eq(f.answers, 2, "without a word");
    cr_assert(list_is_empty(&f.among));
    close_all(&f);
}

static void assert_fails(struct fixture *f, const char *url, const char *why)
{
    struct http_client_options o = {.background = true};
    struct err e;

    http_client_free(f->client);
    cr_assert_eq(http_client_new(f->loop, url, &o, &f->client, &e), 0, "%s", e.text);
    (void)ask(f);
    loop_run(f->loop);
    cr_assert_eq(f->status, 0);
    cr_assert_not_null(strstr(f->why, why), "%s", f->why);
}

/* The name is not looked up yet when the first call begins. */
TEST(http_fetch, waits_for_a_name_in_the_background)
{
    struct fixture f;

    open_all(&f, "");
    assert_fails(&f, "http://localhost:1", "cannot connect");
    assert_fails(&f, "http://no-such-name.invalid", "does not resolve");
    close_all(&f);
}
