/* Feeds over real sockets. Server and viewers share one thread. Every check reads the available
 * bytes. */
#include "common/serve/feed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/serve/exchange.h"
#include "common/serve/server.h"
#include "door.h"
#include "testing.h"

enum { TICK_MS = 5, LOOK_EACH_MS = 1, LOOK_LIMIT_MS = 20000, VIEWERS_MAX = FEED_VIEWERS_MAX + 1 };

struct feed_room {
    struct loop *loop;
    struct server *server;
    struct door door;
    struct loop_timer look;
    bool (*wanted)(const struct feed_room *r);
    uint64_t limit_ms;
    struct feed feed;
    struct exchange *x[VIEWERS_MAX]; /* in order of arrival */
    int fd[VIEWERS_MAX];             /* the viewers' ends */
    struct buf heard[VIEWERS_MAX];
    int n, left, writes;
    uint64_t write_cpu_us; /* processor time of a write */
    bool deaf;             /* viewers do not read */
    const char *awaited;
};

static void room_writes(void *ctx, struct str key, struct buf *out)
{
    struct feed_room *r = ctx;
    uint64_t until_us = clock_thread_cpu_us() + r->write_cpu_us;
    struct buf json = {0};

    while (clock_thread_cpu_us() < until_us)
        ;
    r->writes++;
    buf_printf(&json, "{\"key\":\"%.*s\",\"write\":%d}", (int)key.len, key.p, r->writes);
    feed_event(out, "thing", buf_str(&json));
    buf_done(&json);
}

static void room_left(void *ctx)
{
    struct feed_room *r = ctx;

    r->left++;
}

static void room_request(void *ctx, struct exchange *x)
{
    struct feed_room *r = ctx;

    r->x[r->n++] = x;
}

static void room_hear(struct feed_room *r)
{
    char bytes[64 << 10];
    ssize_t n;

    for (int i = 0; i < r->n && !r->deaf; i++) {
        while (r->fd[i] >= 0 && (n = recv(r->fd[i], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
            buf_add(&r->heard[i], bytes, (size_t)n);
    }
}

static void room_look(struct loop_timer *t)
{
    struct feed_room *r = CONTAINER_OF(t, struct feed_room, look);

    room_hear(r);
    if (r->wanted(r) || clock_ms() > r->limit_ms)
        server_stop(r->server);
    else
        loop_timer_set(r->loop, t, LOOK_EACH_MS, room_look);
}

static void room_until(struct feed_room *r, bool (*wanted)(const struct feed_room *r))
{
    r->wanted = wanted;
    r->limit_ms = clock_ms() + LOOK_LIMIT_MS;
    loop_timer_set(r->loop, &r->look, LOOK_EACH_MS, room_look);
    server_run(r->server);
    cr_assert(wanted(r), "it did not come to pass");
}

static void feed_room_open(struct feed_room *r)
{
    struct server_options o = {.max_body_bytes = 1 << 20, .max_connections = VIEWERS_MAX + 8};
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN);
    door_open(&r->door);
    r->loop = loop_new(&e);
    cr_assert_eq(server_new(r->loop, &o, room_request, r, &r->server, &e), 0, "%s", e.text);
    server_listen(r->server, r->door.fd);
    feed_init(&r->feed, r->loop, TICK_MS);
    r->feed.write = room_writes;
    r->feed.left = room_left;
    r->feed.ctx = r;
}

static void feed_room_close(struct feed_room *r)
{
    feed_end(&r->feed);
    server_free(r->server);
    loop_free(r->loop);
    for (int i = 0; i < r->n; i++) {
        if (r->fd[i] >= 0)
            close(r->fd[i]);
        buf_done(&r->heard[i]);
    }
    door_close(&r->door);
}

static bool all_came(const struct feed_room *r)
{
    return r->n > 0 && r->x[r->n - 1] && r->fd[r->n - 1] >= 0;
}

static bool awaited_is_heard(const struct feed_room *r)
{
    return str_find(buf_str(&r->heard[0]), str_cstr(r->awaited), 0) != SIZE_MAX;
}

/* Connects a viewer. Returns the index of its exchange in r->x. */
static int room_ask(struct feed_room *r)
{
    static const char request[] = "GET /events HTTP/1.1\r\nHost: h\r\n\r\n";
    int i = r->n;

    r->fd[i] = door_connect(&r->door);
    cr_assert_eq(send(r->fd[i], request, sizeof(request) - 1, MSG_NOSIGNAL),
                 (ssize_t)sizeof(request) - 1);
    while (r->n == i)
        room_until(r, all_came);
    return i;
}

static void room_join(struct feed_room *r, enum reach reach, const char *first)
{
    struct err e = {0};

    cr_assert_eq(feed_join(&r->feed, r->x[room_ask(r)], reach, STR(""), str_cstr(first), &e), 0,
                 "%s", e.text);
}

/* Runs the server until viewer 0 has received this text. */
static void room_await(struct feed_room *r, const char *text)
{
    r->awaited = text;
    room_until(r, awaited_is_heard);
}

static size_t heard_at(const struct feed_room *r, int viewer, const char *text)
{
    return str_find(buf_str(&r->heard[viewer]), str_cstr(text), 0);
}

static bool somebody_left(const struct feed_room *r)
{
    return r->left > 0;
}

TEST_WITH(feed, keeps_nothing_while_nobody_looks, feed_room)
{
    cr_assert_not(feed_watched(&f->feed));
    feed_record(&f->feed, STR("a"));
    cr_assert(list_is_empty(&f->feed.waiting) && !loop_timer_active(&f->feed.tick));
}

TEST_WITH(feed, tells_a_thing_once_a_tick_in_the_order_of_change, feed_room)
{
    room_join(f, REACH_PROCESS, "event: first\ndata: {}\n\n");
    for (int i = 0; i < 1000; i++) {
        feed_record(&f->feed, STR("b"));
        feed_record(&f->feed, STR("a"));
    }
    room_await(f, "\"key\":\"a\"");
    cr_assert_eq(f->writes, 2);
    cr_assert_lt(heard_at(f, 0, "event: hello"), heard_at(f, 0, "event: first"));
    cr_assert_lt(heard_at(f, 0, "event: first"), heard_at(f, 0, "\"key\":\"b\""));
    cr_assert_lt(heard_at(f, 0, "\"key\":\"b\""), heard_at(f, 0, "\"key\":\"a\""));
    feed_record(&f->feed, STR("b"));
    room_await(f, "\"key\":\"b\",\"write\":3");
}

TEST_WITH(feed, queued_events_come_behind_what_was_noted_before, feed_room)
{
    room_join(f, REACH_PROCESS, "");
    feed_record(&f->feed, STR("early"));
    feed_event(feed_queue(&f->feed), "own", STR("{}"));
    feed_record(&f->feed, STR("late"));
    room_await(f, "late");
    cr_assert_lt(heard_at(f, 0, "early"), heard_at(f, 0, "event: own"));
    cr_assert_lt(heard_at(f, 0, "event: own"), heard_at(f, 0, "late"));
}

TEST_WITH(feed, relays_to_those_who_joined_for_it, feed_room)
{
    room_join(f, REACH_NODE, "");
    room_join(f, REACH_PROCESS, "");
    room_join(f, REACH_FLEET, "");
    feed_relay(&f->feed, STR("event: relayed\ndata: {}\n\n"), REACH_NODE);
    feed_relay(&f->feed, STR("event: other-node\ndata: {}\n\n"), REACH_FLEET);
    feed_record(&f->feed, STR("both"));
    room_await(f, "both");
    room_hear(f);
    cr_assert(heard_at(f, 0, "event: relayed") < heard_at(f, 0, "both"));
    cr_assert_eq(heard_at(f, 1, "event: relayed"), SIZE_MAX);
    cr_assert_eq(heard_at(f, 0, "event: other-node"), SIZE_MAX);
    cr_assert_neq(heard_at(f, 2, "event: relayed"), SIZE_MAX);
    cr_assert_neq(heard_at(f, 2, "event: other-node"), SIZE_MAX);
    cr_assert_eq(f->feed.n_reach[REACH_NODE], 1);
}

/* Sends 4 MB of events. */
static void overwhelm(struct feed_room *r)
{
    struct buf json = {0};

    buf_add_c(&json, '"');
    memset(buf_reserve(&json, 16 << 10), 'x', 16 << 10);
    json.len += 16 << 10;
    buf_add_c(&json, '"');
    for (int i = 0; i < 256; i++)
        feed_event(feed_queue(&r->feed), "much", buf_str(&json));
    buf_done(&json);
}

static bool ticked(const struct feed_room *r)
{
    return r->feed.ready.len == 0 && list_is_empty(&r->feed.waiting);
}

static bool told_some(const struct feed_room *r)
{
    return r->writes > 0;
}

static void note_many(struct feed_room *r, int n)
{
    char key[24];

    r->writes = 0;
    for (int i = 0; i < n; i++) {
        (void)snprintf(key, sizeof(key), "thing-%d", i);
        feed_record(&r->feed, str_cstr(key));
    }
}

TEST_WITH(feed, tells_less_often_while_there_is_much_to_tell, feed_room)
{
    room_join(f, REACH_PROCESS, "");
    f->write_cpu_us = 20;
    note_many(f, 16);
    room_until(f, ticked);
    cr_assert_eq(f->feed.pause_ms, TICK_MS, "few are told at once");
    note_many(f, 50);
    room_until(f, ticked);
    cr_assert_geq(f->feed.pause_ms, 500, "500 times what 50 writes of 20 us take");
    f->feed.pause_ms = 0;
    note_many(f, 600);
    room_until(f, told_some);
    cr_assert_eq(f->writes, 512, "the rest waits");
    cr_assert_eq(f->feed.pause_ms, 2000, "the longest pause");
}

TEST_WITH(feed, who_does_not_read_loses_events_and_is_told, feed_room)
{
    room_join(f, REACH_PROCESS, "");
    f->deaf = true;
    overwhelm(f);
    overwhelm(f);
    room_until(f, ticked);
    cr_assert_leq(exchange_waiting(f->x[0]), FEED_BEHIND_BYTES);
    feed_record(&f->feed, STR("lost"));
    room_until(f, ticked);
    f->deaf = false;
    room_await(f, "event: reset\ndata: {\"reason\":\"slow\"}\n\n");
    feed_record(&f->feed, STR("heard-again"));
    room_await(f, "heard-again");
    cr_assert_eq(heard_at(f, 0, "\"lost\""), SIZE_MAX);
}

TEST_WITH(feed, refuses_one_viewer_too_many_and_forgets_who_leaves, feed_room)
{
    struct err e = {0};

    for (int i = 0; i < FEED_VIEWERS_MAX; i++)
        room_join(f, REACH_PROCESS, "");
    (void)room_ask(f);
    cr_assert_eq(feed_join(&f->feed, f->x[FEED_VIEWERS_MAX], REACH_PROCESS, STR(""), STR(""), &e),
                 -1);
    cr_assert(e.kind == ERR_OVERLOADED && strstr(e.text, "64"));
    exchange_reply(f->x[FEED_VIEWERS_MAX], 503, "text/plain", STR("full"));
    close(f->fd[0]);
    f->fd[0] = -1;
    room_until(f, somebody_left);
    cr_assert_eq(f->feed.n_viewers, FEED_VIEWERS_MAX - 1);
}

TEST_WITH(feed, the_last_one_takes_the_notes_along, feed_room)
{
    f->feed.pause_ms = 3600000; /* prevents ticks */
    room_join(f, REACH_NODE, "");
    feed_record(&f->feed, STR("never-told"));
    feed_event(feed_queue(&f->feed), "own", STR("{}"));
    close(f->fd[0]);
    f->fd[0] = -1;
    room_until(f, somebody_left);
    cr_assert_not(feed_watched(&f->feed));
    cr_assert_eq(f->feed.n_reach[REACH_NODE], 0);
    cr_assert(list_is_empty(&f->feed.waiting) && f->feed.ready.len == 0);
    cr_assert_not(loop_timer_active(&f->feed.tick));
}

TEST_WITH(feed, the_end_ends_all_answers_without_a_word_of_leaving, feed_room)
{
    room_join(f, REACH_PROCESS, "");
    feed_end(&f->feed);
    cr_assert_not(feed_watched(&f->feed));
    room_await(f, "\r\n0\r\n\r\n"); /* the last chunk */
    cr_assert_eq(f->left, 0);
}
