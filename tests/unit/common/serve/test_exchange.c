/* Exchanges over real sockets. Tests of notes are in test_exchange_notes.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exchange_kit.h"

enum { LEFT_BODY = 24 << 20, CHUNK = 64 << 10 };

static void on_other(struct loop_task *t)
{
    struct fixture *f = CONTAINER_OF(t, struct fixture, other);

    if (f->between > f->most_between)
        f->most_between = f->between;
    f->between = 0;
    loop_task_post(f->loop, t, on_other);
}

/* Handles a request for longer than a turn's share. */
static void on_long_request(void *ctx, struct exchange *x)
{
    struct fixture *f = ctx;
    uint64_t until_us = clock_us() + 3000;

    on_request(ctx, x);
    f->between++;
    while (clock_us() < until_us)
        ;
    exchange_reply(x, 200, "text/plain", STR("x"));
}

/* Reads the available bytes of the socket, with a NUL. */
static size_t hear(int fd, char *to, size_t size)
{
    ssize_t n = recv(fd, to, size - 1, MSG_DONTWAIT);

    cr_assert(n >= 0 || errno == EAGAIN);
    to[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* --- answers --- */

TEST_WITH(exchange, a_reply_is_delivered, fixture)
{
    char heard[1024];
    int fd;

    fd = open_asked(f);
    cr_assert(str_eq_c(exchange_method(f->x[0]), "GET") && str_eq_c(exchange_path(f->x[0]), "/a") &&
              str_eq_c(exchange_query(f->x[0]), "b=c"));
    exchange_set_header(f->x[0], "x-one", STR("1"));
    exchange_reply(f->x[0], 410, "text/plain", STR("gone"));
    run_until(f, one_closed);
    cr_assert_eq(f->delivered, 1);
    (void)hear(fd, heard, sizeof(heard));
    cr_assert(strstr(heard, "HTTP/1.1 410 Gone\r\n") == heard && strstr(heard, "x-one: 1\r\n") &&
              strstr(heard, "\r\n\r\ngone"));
    close(fd);
}

static bool all_are_answered(const struct fixture *f)
{
    return f->n >= 3 && f->closed == f->n;
}

/* Requests wait in their sockets when the server reads. One client has left; its request may be
 * handled or not. */
TEST_WITH(exchange, long_requests_leave_room_for_others, fixture)
{
    int fd[4];

    open_with(f, on_long_request, NULL);
    for (int i = 0; i < 4; i++)
        fd[i] = client(f, PLAIN);
    close(fd[3]);
    loop_task_post(f->loop, &f->other, on_other);
    run_until(f, all_are_answered);
    loop_task_cancel(f->loop, &f->other);
    cr_assert_leq(f->most_between, 2, "%d requests in one turn", f->most_between);
    for (int i = 0; i < 3; i++) {
        char heard[512];

        (void)hear(fd[i], heard, sizeof(heard));
        cr_assert_not_null(strstr(heard, "200 OK"));
        close(fd[i]);
    }
}

/* The owner that would answer is freed next. */
TEST(exchange, the_end_of_the_server_ends_what_waits)
{
    struct fixture f = {0};
    int fd;

    fixture_open(&f);
    fd = open_asked(&f);
    fixture_close(&f);
    cr_assert_eq(f.closed, 1);
    close(fd);
}

/* The first owner that is notified ends the other exchange, whose connection closes at once. */
static void on_first_closed(void *ctx, bool delivered)
{
    struct fixture *f = ctx;

    on_closed(ctx, delivered);
    if (f->closed == 1)
        exchange_fail(f->x[0]);
}

TEST(exchange, at_the_end_an_owner_may_end_others)
{
    struct fixture f = {0};
    int fds[2];

    fixture_open(&f);
    open_all(&f);
    for (int i = 0; i < 2; i++)
        fds[i] = client(&f, "GET /a HTTP/1.0\r\n\r\n"); /* HTTP/1.0: no last chunk is awaited */
    run_until(&f, two_came);
    for (int i = 0; i < 2; i++) {
        struct buf some = {0};

        exchange_watch(f.x[i], on_first_closed, &f);
        exchange_start(f.x[i], "text/plain");
        buf_puts(&some, "some");
        exchange_send(f.x[i], &some);
        buf_done(&some);
    }
    run_until(&f, always);
    fixture_close(&f);
    cr_assert_eq(f.closed, 2);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}

/* Memory that an abandoned thread may read stays, also after the end of the server. */
static struct exchange *stranded;

TEST(exchange, a_stranded_one_is_answered_and_kept)
{
    struct fixture f = {0};
    char heard[4096];
    int fd;

    fixture_open(&f);
    fd = open_asked(&f);
    stranded = f.x[0];
    exchange_hold(stranded);
    exchange_set_header(stranded, "X-A", STR("b"));
    exchange_strand(stranded);
    exchange_reply(stranded, 500, "text/plain", STR("gone\n"));
    cr_assert_gt(hear(fd, heard, sizeof(heard)), 0);
    cr_assert_str_eq(heard, "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n"
                            "Content-Length: 5\r\nX-A: b\r\nConnection: close\r\n\r\ngone\n");
    cr_assert_eq(recv(fd, heard, 1, 0), 0);
    close(fd);
    run_until(&f, always);
    cr_assert_eq(server_busy(f.server), 0);
    fixture_close(&f);
    cr_assert_eq(f.closed, 0);
    cr_assert(str_eq_c(exchange_query(stranded), "b=c"));
}

static bool has_much(const struct fixture *f)
{
    return server_bytes(f->server).bodies > LEFT_BODY - (1 << 20);
}

static bool has_nothing(const struct fixture *f)
{
    return server_bytes(f->server).bodies == 0;
}

TEST_WITH(exchange, a_long_body_that_ends_early_is_given_up, fixture)
{
    char head[128], *body = calloc(1, LEFT_BODY);
    size_t n = 0;
    int fd;

    open_all(f);
    server_limit_bodies(f->server, 64 << 20, 0);
    (void)snprintf(head, sizeof(head), "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
                   LEFT_BODY + 1);
    fd = client(f, head);
    f->limit_ms = clock_ms() + LIMIT_MS;
    while (n < LEFT_BODY && clock_ms() < f->limit_ms) {
        ssize_t sent = send(fd, body + n, LEFT_BODY - n, MSG_DONTWAIT);

        n += sent > 0 ? (size_t)sent : 0;
        f->wanted = always;
        loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
        server_run(f->server);
    }
    cr_assert_eq(n, LEFT_BODY);
    run_until(f, has_much);
    close(fd);
    run_until(f, has_nothing);
    free(body);
}

TEST_WITH(exchange, a_client_that_leaves_is_seen_while_it_waits, fixture)
{
    int fd;

    fd = open_asked(f);
    cr_assert_not(exchange_peer_gone(f->x[0]));
    close(fd);
    cr_assert(exchange_peer_gone(f->x[0]), "the kernel knows at once");
    run_until(f, one_closed);
    cr_assert_eq(f->delivered, 0);
}

static void give(void *ctx)
{
    struct fixture *f = ctx;
    struct buf b = {0};

    while (f->given < (size_t)64 * CHUNK && exchange_waiting(f->x[0]) < EXCHANGE_WINDOW) {
        memset(buf_reserve(&b, CHUNK), 'x', CHUNK);
        b.len = CHUNK;
        f->given += CHUNK;
        exchange_send(f->x[0], &b);
        f->most_waiting = MAX_OF(f->most_waiting, exchange_waiting(f->x[0]));
    }
    buf_done(&b);
    if (f->given == (size_t)64 * CHUNK)
        exchange_end(f->x[0]);
    else
        exchange_on_space(f->x[0], give, f);
}

static bool stalled(const struct fixture *f)
{
    static size_t last;
    static int same;

    same = f->given == last ? same + 1 : 0;
    last = f->given;
    return same > 20; /* no new piece in 20 checks */
}

/* A client reads nothing of 4 MB at first. Only a window of the answer is produced. */
TEST_WITH(exchange, an_answer_in_pieces_waits_for_its_reader, fixture)
{
    static char heard[1 << 20];
    size_t total = 0;
    int fd;

    fd = open_asked(f);
    exchange_start(f->x[0], "text/plain");
    give(f);
    run_until(f, stalled);
    cr_assert_lt(f->given, (size_t)64 * CHUNK, "it did not wait");
    cr_assert_leq(f->most_waiting, (size_t)EXCHANGE_WINDOW + CHUNK);
    while (f->closed == 0) {
        total += hear(fd, heard, sizeof(heard));
        loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
        f->wanted = one_came; /* true at once: runs one turn */
        server_run(f->server);
    }
    while (hear(fd, heard, sizeof(heard)) > 0)
        total += strlen(heard);
    cr_assert_eq(f->given, (size_t)64 * CHUNK);
    cr_assert_gt(total, (size_t)64 * CHUNK);
    close(fd);
}

/* Runs the server until that answer is sent. Counts the bytes that its client receives. */
static size_t hear_all(struct fixture *f, int fd, int closed)
{
    static char heard[1 << 20];
    size_t total = 0, n;

    while (f->closed < closed) {
        total += hear(fd, heard, sizeof(heard));
        loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
        f->wanted = two_came; /* true at once: runs one turn */
        server_run(f->server);
    }
    while ((n = hear(fd, heard, sizeof(heard))) > 0)
        total += n;
    return total;
}

static void answer_with(struct exchange *x, char byte, size_t n)
{
    struct buf b = {0};

    memset(buf_reserve(&b, n), byte, n);
    b.len = n;
    exchange_reply_buf(x, 200, "text/plain", &b);
    buf_done(&b);
}

enum { ANSWER = 4 << 20 };

/* Sent parts of the other answer are freed a part in each turn. */
static bool one_answer_waits(const struct fixture *f)
{
    return server_bytes(f->server).answers == ANSWER;
}

static bool no_answer_waits(const struct fixture *f)
{
    return server_bytes(f->server).answers == 0;
}

/* No client reads yet. The kernel accepts less than half of an answer. */
TEST_WITH(exchange, equal_answers_wait_as_one, fixture)
{
    int fd[2];

    for (int equal = 0; equal < 2; equal++) {
        if (equal) {
            fixture_close(f);
            fixture_open(f);
        }
        open_all(f);
        fd[0] = client(f, PLAIN);
        fd[1] = client(f, PLAIN);
        run_until(f, two_came);
        answer_with(f->x[0], 'a', ANSWER);
        answer_with(f->x[1], equal ? 'a' : 'b', ANSWER);
        cr_assert_eq(server_bytes(f->server).answers, (size_t)(equal ? 1 : 2) * ANSWER);
        cr_assert_eq(exchange_waiting(f->x[1]), ANSWER);
        cr_assert_gt(hear_all(f, fd[0], 1), (size_t)ANSWER);
        run_until(f, one_answer_waits);
        cr_assert_gt(hear_all(f, fd[1], 2), (size_t)ANSWER);
        cr_assert_eq(f->delivered, 2);
        run_until(f, no_answer_waits);
        close(fd[0]);
        close(fd[1]);
    }
}

/* --- answers that are not read --- */

static void send_more(struct exchange *x, size_t n)
{
    struct buf b = {0};

    memset(buf_reserve(&b, n), 'm', n);
    b.len = n;
    exchange_send(x, &b);
    cr_assert_eq(b.len, 0);
    buf_done(&b);
}

/* Opens two running exchanges of one owner. */
static void open_accounted(struct fixture *f, int fd[2])
{
    open_all(f);
    for (int i = 0; i < 2; i++) {
        fd[i] = client(f, PLAIN);
        run_until(f, i ? two_came : one_came);
        exchange_account(f->x[i], STR("owner"));
    }
}

static void close_both(const int fd[2])
{
    close(fd[0]);
    close(fd[1]);
}

TEST_WITH(exchange, too_much_that_nobody_reads_is_cut, fixture)
{
    enum { MUCH = 8 << 20, LESS = 1 << 20, LIMIT = 4 << 20 };

    int fd[2];

    open_accounted(f, fd);
    exchange_start(f->x[0], "text/plain");
    exchange_start(f->x[1], "text/plain");
    send_more(f->x[1], LESS);
    cr_assert_eq(exchange_cut_unread(f->x[1], LIMIT), 0);
    send_more(f->x[0], MUCH);
    send_more(f->x[0], LESS);
    cr_assert_eq(exchange_owner_waiting(f->x[0], STR("owner")), MUCH + 2 * LESS);
    cr_assert_eq(exchange_cut_unread(f->x[1], LIMIT), 1, "the largest, whoever asks");
    cr_assert_eq(exchange_owner_waiting(f->x[0], STR("owner")), LESS);
    cr_assert_eq(f->closed, 0, "in a later turn");
    cr_assert(exchange_peer_gone(f->x[0]));
    send_more(f->x[0], MUCH); /* is not sent */
    cr_assert_leq(exchange_waiting(f->x[0]), MUCH + LESS);
    cr_assert_eq(exchange_cut_unread(f->x[0], LIMIT), 0, "it counts for nobody");
    run_until(f, one_closed);
    cr_assert_eq(f->delivered, 0);
    exchange_end(f->x[1]);
    cr_assert_gt(hear_all(f, fd[1], 2), (size_t)LESS);
    cr_assert_eq(f->delivered, 1, "the other one goes on");
    cr_assert_eq(server_bytes(f->server).answers, 0);
    close_both(fd);
}

/* Ended answers do not grow. An answer that is read meanwhile has few waiting bytes. */
TEST_WITH(exchange, answers_that_have_ended_cut_none_that_is_read, fixture)
{
    enum { MUCH = 8 << 20, LIMIT = 4 << 20 };

    int fd[2];

    open_accounted(f, fd);
    answer_with(f->x[0], 'a', MUCH);
    exchange_start(f->x[1], "text/plain");
    send_more(f->x[1], EXCHANGE_WINDOW);
    cr_assert_eq(exchange_cut_unread(f->x[1], LIMIT), 0);
    send_more(f->x[1], 1);
    cr_assert_eq(exchange_cut_unread(f->x[1], LIMIT), 1);
    run_until(f, one_closed);
    cr_assert_eq(f->delivered, 0);
    cr_assert_gt(hear_all(f, fd[0], 2), (size_t)MUCH);
    cr_assert_eq(f->delivered, 1);
    close_both(fd);
}
