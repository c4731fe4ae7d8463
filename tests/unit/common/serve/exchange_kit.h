/*
 * Exchanges over real sockets. Server and clients share one thread; the test checks its conditions
 * between turns of the server.
 */
#ifndef RG_UNIT_EXCHANGE_KIT_H
#define RG_UNIT_EXCHANGE_KIT_H

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "common/serve/exchange.h"
#include "common/serve/server.h"
#include "door.h"
#include "testing.h"

enum { LOOK_MS = 1, LIMIT_MS = 10000 };

#define PLAIN "GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"

struct fixture {
    struct loop *loop;
    struct server *server;
    struct door door;
    struct loop_timer look;
    bool (*wanted)(const struct fixture *f);
    bool met; /* `wanted` held at the last look */
    uint64_t limit_ms;
    struct exchange *x[4]; /* in order of arrival */
    int n, closed, delivered, arrived, dropped;
    struct waiter known;
    size_t given, most_waiting; /* bytes of a pulled answer: handed out; most that waited */
    struct loop_task other;     /* a task that is posted again with each request */
    int between, most_between;  /* number of requests that arrived before the task ran */
};

static inline void on_closed(void *ctx, bool delivered)
{
    struct fixture *f = ctx;

    f->closed++;
    f->delivered += delivered;
}

static inline void on_request(void *ctx, struct exchange *x)
{
    struct fixture *f = ctx;

    f->x[f->n++] = x;
    exchange_watch(x, on_closed, f);
}

static inline bool always(const struct fixture *f)
{
    (void)f;
    return true;
}

static inline void on_look(struct loop_timer *t)
{
    struct fixture *f = CONTAINER_OF(t, struct fixture, look);

    f->met = f->wanted(f);
    if (f->met || clock_ms() > f->limit_ms)
        server_stop(f->server);
    else
        loop_timer_set(f->loop, t, LOOK_MS, on_look);
}

/* Runs the server until the condition holds. */
static inline void run_until(struct fixture *f, bool (*wanted)(const struct fixture *f))
{
    f->wanted = wanted;
    f->limit_ms = clock_ms() + LIMIT_MS;
    loop_timer_set(f->loop, &f->look, LOOK_MS, on_look);
    server_run(f->server);
    cr_assert(f->met, "it did not come to pass");
}

/* Opens the door. The test opens the server behind it. */
static inline void fixture_open(struct fixture *f)
{
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN); /* as in every process of the program */
    *f = (struct fixture){.loop = loop_new(&e)};
    door_open(&f->door);
}

static inline void open_with(struct fixture *f, server_handler_fn handler,
                             bool (*packs)(struct str line))
{
    struct server_options o = {.max_body_bytes = 1 << 20, .max_connections = 16, .packs = packs};
    struct err e;

    cr_assert_eq(server_new(f->loop, &o, handler, f, &f->server, &e), 0, "%s", e.text);
    server_listen(f->server, f->door.fd);
}

static inline void open_all(struct fixture *f)
{
    open_with(f, on_request, NULL);
}

static inline void fixture_close(struct fixture *f)
{
    server_free(f->server);
    loop_free(f->loop);
    door_close(&f->door);
}

static inline void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Connects a client and sends its request. Returns its descriptor. */
static inline int client(const struct fixture *f, const char *request)
{
    int fd = door_connect(&f->door);

    say(fd, request);
    return fd;
}

static inline bool one_came(const struct fixture *f)
{
    return f->n == 1;
}

static inline bool two_came(const struct fixture *f)
{
    return f->n == 2;
}

static inline bool one_closed(const struct fixture *f)
{
    return f->closed == 1;
}

/* Opens a server with one plain request that waits for its answer. */
static inline int open_asked(struct fixture *f)
{
    int fd;

    open_all(f);
    fd = client(f, PLAIN);
    run_until(f, one_came);
    return fd;
}

#endif
