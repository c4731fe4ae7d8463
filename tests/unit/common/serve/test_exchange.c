/* Exchanges over real sockets: server and clients share one thread, the test looks between turns.
 */
#include "common/serve/exchange.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/serve/server.h"
#include "door.h"
#include "testing.h"

enum { LEFT_BODY = 24 << 20 };

enum { LOOK_MS = 1, LIMIT_MS = 10000, CHUNK = 64 << 10 };

#define PLAIN "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"
#define CONFIRMING "GET /a HTTP/1.1\r\nHost: h\r\n" HTTP1_CONFIRMS ": 1\r\n\r\n"

struct fixture {
    struct loop *loop;
    struct server *server;
    struct door door;
    struct loop_timer look;
    bool (*wanted)(const struct fixture *f);
    uint64_t limit_ms;
    struct exchange *x[4]; /* in the order of their coming */
    int n, closed, delivered, arrived, dropped, again;
    size_t given, most_waiting; /* of a pulled answer */
    struct loop_task other;     /* somebody else's, from one request to the next */
    int between, most_between;  /* requests that came before it ran */
};

static void on_closed(void *ctx, bool delivered)
{
    struct fixture *f = ctx;

    f->closed++;
    f->delivered += delivered;
}

static void on_request(void *ctx, struct exchange *x)
{
    struct fixture *f = ctx;

    f->x[f->n++] = x;
    exchange_watch(x, on_closed, f);
}

static void on_other(struct loop_task *t)
{
    struct fixture *f = CONTAINER_OF(t, struct fixture, other);

    if (f->between > f->most_between)
        f->most_between = f->between;
    f->between = 0;
    loop_task_post(f->loop, t, on_other);
}

/* Takes longer than a turn gives to requests. */
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

/* Counts turns while more than a megabyte is left. */
static void on_turn(struct loop_task *t)
{
    struct fixture *f = CONTAINER_OF(t, struct fixture, other);

    f->between++;
    if (server_bytes(f->server).bodies > 0)
        loop_task_post(f->loop, t, on_turn);
}

static bool always(const struct fixture *f)
{
    (void)f;
    return true;
}

static void on_look(struct loop_timer *t)
{
    struct fixture *f = CONTAINER_OF(t, struct fixture, look);

    if (f->wanted(f) || clock_ms() > f->limit_ms)
        server_stop(f->server);
    else
        loop_timer_set(f->loop, t, LOOK_MS, on_look);
}

/* Runs the server until the condition holds. */
static void run_until(struct fixture *f, bool (*wanted)(const struct fixture *f))
{
    f->wanted = wanted;
    f->limit_ms = clock_ms() + LIMIT_MS;
    loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
    server_run(f->server);
    cr_assert(wanted(f), "it did not come to pass");
}

static void open_with(struct fixture *f, server_handler_fn handler, bool (*packs)(struct str line))
{
    struct server_options o = {.max_body_bytes = 1 << 20, .max_connections = 16, .packs = packs};
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN); /* as every process of ours does */
    *f = (struct fixture){0};
    door_open(&f->door);
    f->loop = loop_new(&e);
    cr_assert_eq(server_new(f->loop, &o, handler, f, &f->server, &e), 0, "%s", e.text);
    server_listen(f->server, f->door.fd);
}

static void open_for(struct fixture *f, server_handler_fn handler)
{
    open_with(f, handler, NULL);
}

static void open_all(struct fixture *f)
{
    open_for(f, on_request);
}

static void close_all(struct fixture *f)
{
    server_free(f->server);
    loop_free(f->loop);
    door_close(&f->door);
}

static void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* A client that has sent its request. */
static int client(const struct fixture *f, const char *request)
{
    int fd = door_connect(&f->door);

    say(fd, request);
    return fd;
}

/* What lies in the socket now, NUL-terminated. */
static size_t hear(int fd, char *to, size_t size)
{
    ssize_t n = recv(fd, to, size - 1, MSG_DONTWAIT);

    cr_assert(n >= 0 || errno == EAGAIN);
    to[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static bool one_came(const struct fixture *f)
{
    return f->n == 1;
}

static bool two_came(const struct fixture *f)
{
    return f->n == 2;
}

static bool one_closed(const struct fixture *f)
{
    return f->closed == 1;
}

static bool one_arrived(const struct fixture *f)
{
    return f->arrived == 1;
}

static bool one_dropped(const struct fixture *f)
{
    return f->dropped == 1;
}

static bool asked_again(const struct fixture *f)
{
    return f->again == 1;
}

/* One plain request has come, and waits for its answer. */
static int open_asked(struct fixture *f)
{
    int fd;

    open_all(f);
    fd = client(f, PLAIN);
    run_until(f, one_came);
    return fd;
}

/* --- answers --- */

TEST(exchange, a_reply_is_delivered)
{
    char heard[1024];
    struct fixture f;
    int fd;

    fd = open_asked(&f);
    cr_assert(str_eq_c(exchange_method(f.x[0]), "GET") && str_eq_c(exchange_path(f.x[0]), "/a") &&
              str_eq_c(exchange_query(f.x[0]), "b=c"));
    exchange_set_header(f.x[0], "x-one", STR("1"));
    exchange_reply(f.x[0], 410, "text/plain", STR("gone"));
    run_until(&f, one_closed);
    cr_assert_eq(f.delivered, 1);
    (void)hear(fd, heard, sizeof(heard));
    cr_assert(strstr(heard, "HTTP/1.1 410 Gone\r\n") == heard && strstr(heard, "x-one: 1\r\n") &&
              strstr(heard, "\r\n\r\ngone"));
    close(fd);
    close_all(&f);
}

static bool all_are_answered(const struct fixture *f)
{
    return f->n >= 3 && f->closed == f->n;
}

/* They lie in their sockets when the server looks. One has left, and may be begun or not. */
TEST(exchange, long_requests_leave_room_for_others)
{
    struct fixture f;
    int fd[4];

    open_for(&f, on_long_request);
    for (int i = 0; i < 4; i++)
        fd[i] = client(&f, PLAIN);
    close(fd[3]);
    loop_task_post(f.loop, &f.other, on_other);
    run_until(&f, all_are_answered);
    loop_task_cancel(f.loop, &f.other);
    cr_assert_leq(f.most_between, 2, "%d requests in one turn", f.most_between);
    for (int i = 0; i < 3; i++) {
        char heard[512];

        (void)hear(fd[i], heard, sizeof(heard));
        cr_assert_not_null(strstr(heard, "200 OK"));
        close(fd[i]);
    }
    close_all(&f);
}

/* Who would answer it goes next. */
TEST(exchange, the_end_of_the_server_ends_what_waits)
{
    struct fixture f;
    int fd = open_asked(&f);

    close_all(&f);
    cr_assert_eq(f.closed, 1);
    close(fd);
}

/* Whose owner is told first breaks the other one off, and its connection goes at once. */
static void on_first_closed(void *ctx, bool delivered)
{
    struct fixture *f = ctx;

    on_closed(ctx, delivered);
    if (f->closed == 1)
        exchange_fail(f->x[0]);
}

TEST(exchange, at_the_end_an_owner_may_end_others)
{
    struct fixture f;
    int fds[2];

    open_all(&f);
    for (int i = 0; i < 2; i++)
        fds[i] = client(&f, "GET /a HTTP/1.0\r\n\r\n"); /* no last chunk that it waits for */
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
    close_all(&f);
    cr_assert_eq(f.closed, 2);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}

/* What a lost thread may read stays, also behind the server's end. */
static struct exchange *stranded;

TEST(exchange, a_stranded_one_is_answered_and_kept)
{
    struct fixture f;
    char heard[4096];
    int fd;

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
    close_all(&f);
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

/* It was read a piece a turn, and is given up so: all at once would take milliseconds. */
TEST(exchange, a_long_body_that_ends_early_is_given_up_in_turns)
{
    struct fixture f;
    char head[128], *body = calloc(1, LEFT_BODY);
    size_t n = 0;
    int fd;

    open_all(&f);
    server_limit_bodies(f.server, 64 << 20, 0);
    (void)snprintf(head, sizeof(head), "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
                   LEFT_BODY + 1);
    fd = client(&f, head);
    f.limit_ms = clock_ms() + LIMIT_MS;
    while (n < LEFT_BODY && clock_ms() < f.limit_ms) {
        ssize_t sent = send(fd, body + n, LEFT_BODY - n, MSG_DONTWAIT);

        n += sent > 0 ? (size_t)sent : 0;
        f.wanted = always;
        loop_timer_set(f.loop, &f.look, LOOK_MS, on_look);
        server_run(f.server);
    }
    cr_assert_eq(n, LEFT_BODY);
    run_until(&f, has_much);
    loop_task_post(f.loop, &f.other, on_turn);
    close(fd);
    run_until(&f, has_nothing);
    cr_assert_geq(f.between, LEFT_BODY / (2 << 20), "given up in %d turns", f.between);
    loop_task_cancel(f.loop, &f.other);
    free(body);
    close_all(&f);
}

TEST(exchange, a_client_that_leaves_is_seen_while_it_waits)
{
    struct fixture f;
    int fd;

    fd = open_asked(&f);
    cr_assert_not(exchange_peer_gone(f.x[0]));
    close(fd);
    cr_assert(exchange_peer_gone(f.x[0]), "the kernel knows at once");
    run_until(&f, one_closed);
    cr_assert_eq(f.delivered, 0);
    close_all(&f);
}

static void give(void *ctx)
{
    struct fixture *f = ctx;
    struct buf b = {0};

    memset(buf_reserve(&b, CHUNK), 'x', CHUNK);
    b.len = CHUNK;
    f->given += CHUNK;
    exchange_send(f->x[0], &b);
    f->most_waiting = MAX_OF(f->most_waiting, exchange_waiting(f->x[0]));
    buf_done(&b);
    if (f->given == (size_t)64 * CHUNK)
        exchange_end(f->x[0]);
}

static bool stalled(const struct fixture *f)
{
    static size_t last;
    static int same;

    same = f->given == last ? same + 1 : 0;
    last = f->given;
    return same > 20; /* 20 looks without a further piece */
}

/* 4 MB for a client that reads nothing at first: only a window of it is made. */
TEST(exchange, a_pulled_answer_waits_for_its_reader)
{
    static char heard[1 << 20];
    size_t total = 0;
    struct fixture f;
    int fd;

    fd = open_asked(&f);
    exchange_start(f.x[0], "text/plain");
    exchange_pull(f.x[0], give, &f);
    run_until(&f, stalled);
    cr_assert_lt(f.given, (size_t)64 * CHUNK, "it did not wait");
    cr_assert_leq(f.most_waiting, (size_t)EXCHANGE_WINDOW + CHUNK);
    while (f.closed == 0) {
        total += hear(fd, heard, sizeof(heard));
        loop_timer_set(f.loop, &f.look, LOOK_MS, on_look);
        f.wanted = one_came; /* true at once: one turn */
        server_run(f.server);
    }
    while (hear(fd, heard, sizeof(heard)) > 0)
        total += strlen(heard);
    cr_assert_eq(f.given, (size_t)64 * CHUNK);
    cr_assert_gt(total, (size_t)64 * CHUNK);
    close(fd);
    close_all(&f);
}

/* Turns the server until that answer has gone out, and counts what its client hears. */
static size_t hear_all(struct fixture *f, int fd, int closed)
{
    static char heard[1 << 20];
    size_t total = 0, n;

    while (f->closed < closed) {
        total += hear(fd, heard, sizeof(heard));
        loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
        f->wanted = two_came; /* true at once: one turn */
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

/* What was sent of the other one goes back a part a turn. */
static bool one_answer_waits(const struct fixture *f)
{
    return server_bytes(f->server).answers == ANSWER;
}

static bool no_answer_waits(const struct fixture *f)
{
    return server_bytes(f->server).answers == 0;
}

/* Nobody reads yet; the kernel takes less than half of one. */
TEST(exchange, equal_answers_wait_as_one)
{
    struct fixture f;
    int fd[2];

    for (int equal = 0; equal < 2; equal++) {
        open_all(&f);
        fd[0] = client(&f, PLAIN);
        fd[1] = client(&f, PLAIN);
        run_until(&f, two_came);
        answer_with(f.x[0], 'a', ANSWER);
        answer_with(f.x[1], equal ? 'a' : 'b', ANSWER);
        cr_assert_eq(server_bytes(f.server).answers, (size_t)(equal ? 1 : 2) * ANSWER);
        cr_assert_eq(exchange_waiting(f.x[1]), ANSWER);
        cr_assert_gt(hear_all(&f, fd[0], 1), (size_t)ANSWER);
        run_until(&f, one_answer_waits);
        cr_assert_gt(hear_all(&f, fd[1], 2), (size_t)ANSWER);
        cr_assert_eq(f.delivered, 2);
        run_until(&f, no_answer_waits);
        close(fd[0]);
        close(fd[1]);
        close_all(&f);
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

/* Two of one owner, which run. */
static void open_accounted(struct fixture *f, int fd[2])
{
    open_all(f);
    for (int i = 0; i < 2; i++) {
        fd[i] = client(f, PLAIN);
        run_until(f, i ? two_came : one_came);
        exchange_account(f->x[i], STR("owner"));
    }
}

static void close_both(struct fixture *f, const int fd[2])
{
    close(fd[0]);
    close(fd[1]);
    close_all(f);
}

TEST(exchange, too_much_that_nobody_reads_is_cut)
{
    enum { MUCH = 8 << 20, LESS = 1 << 20, LIMIT = 4 << 20 };

    struct fixture f;
    int fd[2];

    open_accounted(&f, fd);
    exchange_start(f.x[0], "text/plain");
    exchange_start(f.x[1], "text/plain");
    send_more(f.x[1], LESS);
    cr_assert_eq(exchange_cut_unread(f.x[1], LIMIT), 0);
    send_more(f.x[0], MUCH);
    send_more(f.x[0], LESS);
    cr_assert_eq(exchange_owner_waiting(f.x[0], STR("owner")), MUCH + 2 * LESS);
    cr_assert_eq(exchange_cut_unread(f.x[1], LIMIT), 1, "the largest, whoever asks");
    cr_assert_eq(exchange_owner_waiting(f.x[0], STR("owner")), LESS);
    cr_assert_eq(f.closed, 0, "in a later turn");
    cr_assert(exchange_peer_gone(f.x[0]));
    send_more(f.x[0], MUCH); /* goes nowhere */
    cr_assert_leq(exchange_waiting(f.x[0]), MUCH + LESS);
    cr_assert_eq(exchange_cut_unread(f.x[0], LIMIT), 0, "it counts for nobody");
    run_until(&f, one_closed);
    cr_assert_eq(f.delivered, 0);
    exchange_end(f.x[1]);
    cr_assert_gt(hear_all(&f, fd[1], 2), (size_t)LESS);
    cr_assert_eq(f.delivered, 1, "the other one goes on");
    cr_assert_eq(server_bytes(f.server).answers, 0);
    close_both(&f, fd);
}

/* They grow no more; who reads beside them has next to nothing waiting. */
TEST(exchange, answers_that_have_ended_cut_none_that_is_read)
{
    enum { MUCH = 8 << 20, LIMIT = 4 << 20 };

    struct fixture f;
    int fd[2];

    open_accounted(&f, fd);
    answer_with(f.x[0], 'a', MUCH);
    exchange_start(f.x[1], "text/plain");
    send_more(f.x[1], EXCHANGE_WINDOW);
    cr_assert_eq(exchange_cut_unread(f.x[1], LIMIT), 0);
    send_more(f.x[1], 1);
    cr_assert_eq(exchange_cut_unread(f.x[1], LIMIT), 1);
    run_until(&f, one_closed);
    cr_assert_eq(f.delivered, 0);
    cr_assert_gt(hear_all(&f, fd[0], 2), (size_t)MUCH);
    cr_assert_eq(f.delivered, 1);
    close_both(&f, fd);
}

/* --- notes --- */

static const char key_a[] = "aaaaaaaaaaaaaaaa1", key_b[] = "aaaaaaaaaaaaaaaa2",
                  key_c[] = "cccccccccccccccc1";

static void on_arrived(void *ctx, struct str key)
{
    cr_assert(str_eq_c(key, key_a));
    ((struct fixture *)ctx)->arrived++;
}

static void on_dropped(void *ctx)
{
    ((struct fixture *)ctx)->dropped++;
}

static void note(struct fixture *f, struct exchange *x)
{
    exchange_note(x,
                  &(struct exchange_note){
                      .key = str_cstr(key_a), .arrived = on_arrived, .drop = on_dropped, .ctx = f});
}

TEST(exchange, without_confirmations_the_kernel_is_believed)
{
    struct fixture f;
    int fd;

    fd = open_asked(&f);
    note(&f, f.x[0]);
    cr_assert(exchange_under_way(f.x[0], str_cstr(key_a)));
    cr_assert_not(exchange_under_way(f.x[0], str_cstr(key_b)));
    exchange_reply(f.x[0], 200, "text/plain", STR("yes"));
    run_until(&f, one_arrived);
    cr_assert_eq(f.dropped, 1, "after that it is dropped, too");
    close(fd);
    close_all(&f);
}

TEST(exchange, who_confirms_is_waited_for)
{
    struct fixture f;
    int first, second;

    open_all(&f);
    first = client(&f, CONFIRMING);
    run_until(&f, one_came);
    note(&f, f.x[0]);
    exchange_reply(f.x[0], 200, "text/plain", STR("yes"));
    run_until(&f, one_closed);
    cr_assert_eq(f.arrived, 0, "all is in the kernel, but nobody has said that it arrived");
    second = client(&f, PLAIN);
    run_until(&f, two_came);
    cr_assert(exchange_under_way(f.x[1], str_cstr(key_a)));
    exchange_settle(f.x[1], str_of(key_a, EXCHANGE_NOTE_START));
    cr_assert_eq(f.arrived, 0);
    say(first, "\r\n");
    exchange_settle(f.x[1], str_of(key_c, EXCHANGE_NOTE_START));
    cr_assert_eq(f.arrived, 0, "another one's notes are left alone");
    exchange_settle(f.x[1], str_of(key_a, EXCHANGE_NOTE_START));
    cr_assert_eq(f.arrived, 1, "before the loop has come to it");
    cr_assert_not(exchange_under_way(f.x[1], str_cstr(key_a)));
    exchange_reply(f.x[1], 200, "text/plain", STR("yes"));
    close(first);
    close(second);
    close_all(&f);
}

TEST(exchange, an_answer_is_lost_with_its_connection)
{
    struct fixture f;
    int fd;

    open_all(&f);
    fd = client(&f, CONFIRMING);
    run_until(&f, one_came);
    note(&f, f.x[0]);
    exchange_reply(f.x[0], 200, "text/plain", STR("yes"));
    run_until(&f, one_closed);
    close(fd);
    run_until(&f, one_dropped);
    cr_assert_eq(f.arrived, 0);
    close_all(&f);
}

/* --- waiting for one under way --- */

static void on_again(void *ctx)
{
    ((struct fixture *)ctx)->again++;
}

static bool wait_for(struct fixture *f, struct exchange *x, const char *key, uint64_t max_ms)
{
    return exchange_await(x, &(struct exchange_wait){.key_start = str_of(key, EXCHANGE_NOTE_START),
                                                     .max_ms = max_ms,
                                                     .again = on_again,
                                                     .ctx = f});
}

TEST(exchange, a_second_one_looks_again_once_the_first_has_arrived)
{
    struct fixture f;
    int first, second;

    open_all(&f);
    first = client(&f, CONFIRMING);
    run_until(&f, one_came);
    note(&f, f.x[0]);
    second = client(&f, PLAIN);
    run_until(&f, two_came);
    cr_assert(wait_for(&f, f.x[1], key_b, 0));
    exchange_reply(f.x[0], 200, "text/plain", STR("yes"));
    run_until(&f, one_closed);
    cr_assert_eq(f.again, 0);
    say(first, "\r\n");
    run_until(&f, asked_again);
    cr_assert_eq(f.arrived, 1);
    exchange_reply(f.x[1], 200, "text/plain", STR("yes"));
    close(first);
    close(second);
    close_all(&f);
}

TEST(exchange, nobody_waits_longer_than_the_limit)
{
    struct fixture f;
    int fd;

    fd = open_asked(&f);
    cr_assert(wait_for(&f, f.x[0], key_a, 5));
    run_until(&f, asked_again);
    cr_assert_not(wait_for(&f, f.x[0], key_a, 5), "it has waited that long in all");
    exchange_reply(f.x[0], 200, "text/plain", STR("yes"));
    run_until(&f, one_closed);
    close(fd);
    close_all(&f);
}
