/* Requests in a fleet over real sockets. The test is the client, the nodes, the own worker, and the
 * keeper that writes the place table. */
#ifndef RG_UNIT_FLEET_KIT_H
#define RG_UNIT_FLEET_KIT_H

#include "common/base/clock.h"
#include "common/fleet/place_table.h"
#include "common/net/http1.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "door.h"
#include "router/clients.h"
#include "router/conn.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/upstreams.h"
#include "testing.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 10000, NODES = 3, SELF = 0, B = 1, C = 2, SILENT_MS = 60 };

#define ID "0123456789abcdef0123456789abcdef"
#define GET(place) "GET /sessions/w" #place "-" ID " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST(place, path, length)         \
    "POST /sessions/w" #place "-" ID path \
    " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " #length "\r\n\r\n"
#define FOUND "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define MISDIRECTED "HTTP/1.1 421 Misdirected\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

struct fleet {
    struct config config;
    struct heritage heritage;
    struct hub hub;
    struct door door; /* socket of the own worker */
    struct place_table *table;
    struct keys *keys;
    int listener[NODES]; /* listeners of the other nodes; -1: the node is gone */
    uint64_t epoch;
    int client, link; /* `link`: the router's last connection to a node or worker; -1: none */
    char text[1 << 18];
};

/* Sets the owner of a place. Places 0, 256 and 512 are the first of the blocks of a, b and c. */
static inline void set_owner(struct fleet *f, uint32_t index, uint32_t node)
{
    struct fleet_place place = {.index = index, .node = node, .epoch = ++f->epoch, .whole = true};

    cr_assert(place_table_set(f->table, &place));
}

static inline int listen_tcp(uint16_t *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, len), 0);
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static inline void set_node(struct fleet *f, uint32_t slot, uint16_t port,
                            enum fleet_node_state state)
{
    struct fleet_node node = {.state = state, .block = slot};

    (void)snprintf(node.name, sizeof(node.name), "%c", 'a' + (char)slot);
    (void)snprintf(node.address, sizeof(node.address), "127.0.0.1:%u", port);
    place_table_set_node(f->table, slot, &node);
}

static inline void fleet_open(struct fleet *f)
{
    struct loop *l;
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN);
    f->client = f->link = -1;
    door_folder(&f->door);
    f->config.max_body_bytes = 1 << 20;
    f->config.max_header_bytes = 1 << 16;
    f->config.idle_timeout_ms = f->config.header_timeout_ms = f->config.body_timeout_ms =
        f->config.send_timeout_ms = f->config.fleet_hold_ms = 60000;
    f->table = place_table_new();
    f->heritage = (struct heritage){.config = &f->config,
                                    .board = board_new(),
                                    .fleet = f->table,
                                    .run_dir = f->door.folder,
                                    .state_dir = f->door.folder};
    f->heritage.board->workers = 1;
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_READY;
    cr_assert_eq(heritage_socket_path(f->door.folder, 0, f->door.path, sizeof(f->door.path)), 0);
    door_listen(&f->door);
    f->listener[SELF] = f->door.fd;
    for (uint32_t slot = 0; slot < NODES; slot++) {
        uint16_t port = 0;

        if (slot != SELF)
            f->listener[slot] = listen_tcp(&port);
        set_node(f, slot, port, FLEET_UP);
        set_owner(f, slot * FLEET_BLOCK_SIZE, slot);
    }
    place_table_set_self(f->table, SELF);
    place_table_set_complete(f->table, 0, UINT64_MAX);
    l = loop_new(&e);
    hub_init(&f->hub, &f->heritage, l, upstreams_new(&f->heritage, l, &e));
    cr_assert_not_null(f->hub.upstreams, "%s", e.text);
    cr_assert_eq(keys_load(NULL, NULL, f->door.folder, &f->keys, &e), 0, "%s", e.text);
    hub_set_keys(&f->hub, f->keys);
    clients_init(&f->hub);
}

static inline void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static inline void fleet_close(struct fleet *f)
{
    struct loop *l = f->hub.loop;

    clients_close_all(&f->hub);
    (void)loop_poll(l, 0);
    lendings_free(f->hub.lendings);
    upstreams_free(f->hub.upstreams);
    hub_done(&f->hub);
    loop_free(l);
    board_free(f->heritage.board);
    place_table_free(f->table);
    keys_free(f->keys);
    (void)snprintf(f->text, sizeof(f->text), "%s/key-secret", f->door.folder);
    (void)unlink(f->text);
    drop(&f->client);
    drop(&f->link);
    drop(&f->listener[B]);
    drop(&f->listener[C]);
    door_close(&f->door);
}

static inline void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static inline void connect_client(struct fleet *f)
{
    int fds[2];

    drop(&f->client);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    f->client = fds[0];
    clients_add(&f->hub, fds[1], STR("10.0.0.1"));
}

static inline void ask(struct fleet *f, const char *request)
{
    connect_client(f);
    say(f->client, request);
}

/* Asks as the node `by` does when it forwards the request. */
static inline void ask_by(struct fleet *f, const char *by, const char *request)
{
    const char *end = strstr(request, "\r\n\r\n");
    char text[512];

    (void)snprintf(text, sizeof(text), "%.*s\r\n" HTTP1_FORWARDED_BY ": %s %s%s",
                   (int)(end - request), request, by, keys_node_proof(f->keys), end);
    ask(f, text);
}

/* Runs the router until fd is readable, for at most limit_ms. */
static inline bool wait_for(struct fleet *f, int fd, uint64_t limit_ms)
{
    uint64_t until_ms = clock_ms() + limit_ms;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (poll(&p, 1, 0) == 0) {
        if (clock_ms() >= until_ms)
            return false;
        (void)loop_poll(f->hub.loop, 1);
    }
    return true;
}

/* Runs the router until a request is held, or none is. */
static inline void wait_held(struct fleet *f, bool held)
{
    uint64_t until_ms = clock_ms() + LIMIT_MS;

    while (list_is_empty(&f->hub.held) == held) {
        cr_assert_lt(clock_ms(), until_ms);
        (void)loop_poll(f->hub.loop, 1);
    }
}

static inline const char *hear(struct fleet *f, int fd, const char *end)
{
    size_t n = 0;
    ssize_t got = 1;

    f->text[0] = '\0';
    while (got > 0 && !(end && strstr(f->text, end))) {
        cr_assert(wait_for(f, fd, LIMIT_MS), "nothing comes after: %s", f->text);
        got = recv(fd, f->text + n, sizeof(f->text) - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        f->text[n] = '\0';
    }
    return f->text;
}

/* Reads the request that a node gets, up to `end`, on the link or on a new one. */
static inline const char *node_hears(struct fleet *f, uint32_t node, const char *end)
{
    if (f->link < 0) {
        cr_assert(wait_for(f, f->listener[node], LIMIT_MS), "node %u gets nothing", node);
        f->link = accept(f->listener[node], NULL, NULL);
        cr_assert_geq(f->link, 0);
    }
    return hear(f, f->link, end);
}

/* Lets the node read n bytes. */
static inline void node_takes(struct fleet *f, size_t n)
{
    while (n > 0) {
        ssize_t got;

        cr_assert(wait_for(f, f->link, LIMIT_MS));
        got = recv(f->link, f->text, MIN_OF(n, sizeof(f->text)), 0);
        cr_assert_gt(got, 0);
        n -= (size_t)got;
    }
}

/* Closes the node's connection. */
static inline void node_ends(struct fleet *f)
{
    drop(&f->link);
}

static inline void node_resets(struct fleet *f)
{
    (void)setsockopt(f->link, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                     sizeof(struct linger));
    node_ends(f);
}

static inline void expect(struct fleet *f, const char *status, const char *part)
{
    hear(f, f->client, part);
    cr_assert(strstr(f->text, status) == f->text && strstr(f->text, part), "%s", f->text);
}

#endif
