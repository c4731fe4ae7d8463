/* bench: rg_common */
/*
 * The least that a relay in a process can cost, as a floor for the router bench: it takes bytes
 * from one socket and gives them to another, with nothing but the system calls that this needs. It
 * reads no head but for the worker's number, checks nothing, keeps no deadline and waits in
 * send() for a peer that does not read. So it is no router; it is what a router is measured
 * against.
 *
 *     bench_relay PORT DIR
 *
 * Each client has its own connection to each worker it asks (DIR/w<i>.sock), made at its first
 * request to that worker. One request after another on a connection, each beginning with a read of
 * its own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"

enum { WORKERS = 8, ROOM = 256 * 1024, EVENTS = 256, PATH_SEEN = 256 };

/* One side of a connection. A client's has the workers' sides, a worker's has the client's. */
struct side {
    int fd; /* -1: closed. Sides are not freed: the bench ends soon. */
    bool client;
    struct side *to; /* where the bytes read here go; NULL before the first request */
    struct side *workers[WORKERS];
};

static const char *folder;
static int epoll;
static char room[ROOM];

static struct side *add_side(int fd, bool client)
{
    struct side *s = mem_zalloc(sizeof(*s));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = s};

    *s = (struct side){.fd = fd, .client = client};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    return s;
}

static struct side *connect_worker(struct side *client, int worker)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct side *s;

    CHECK(snprintf(a.sun_path, sizeof(a.sun_path), "%s/w%d.sock", folder, worker) <
          (int)sizeof(a.sun_path));
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0);
    s = add_side(fd, false);
    s->to = client;
    return s;
}

/* The worker that a request's first bytes name ("/sessions/w3-..."); the first one if none. */
static struct side *worker_of(struct side *client, size_t n)
{
    static const char prefix[] = "/sessions/w";
    const char *at = memmem(room, n < PATH_SEEN ? n : PATH_SEEN, prefix, sizeof(prefix) - 1);
    int worker = at ? (at[sizeof(prefix) - 1] - '0') % WORKERS : 0;

    CHECK(worker >= 0);
    if (!client->workers[worker])
        client->workers[worker] = connect_worker(client, worker);
    return client->workers[worker];
}

static void close_side(struct side *s)
{
    if (s->fd >= 0)
        (void)close(s->fd);
    s->fd = -1;
}

static void close_client(struct side *client)
{
    for (int i = 0; i < WORKERS; i++)
        if (client->workers[i])
            close_side(client->workers[i]);
    close_side(client);
}

static bool send_all(struct side *to, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(to->fd, room + at, n - at, MSG_NOSIGNAL);

        if (sent < 0)
            return false;
        at += (size_t)sent;
    }
    return true;
}

static void relay(struct side *from)
{
    ssize_t n = ROOM;

    while (from->fd >= 0 && n == ROOM) {
        n = recv(from->fd, room, ROOM, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0 && from->client && (room[0] == 'G' || room[0] == 'P'))
            from->to = worker_of(from, (size_t)n);
        if (n > 0 && from->to && send_all(from->to, (size_t)n))
            continue;
        close_client(from->client || !from->to ? from : from->to);
        return;
    }
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
    CHECK(bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 4096) == 0);
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS], accepting = {.events = EPOLLIN};
    int listener, one = 1;

    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench_relay PORT DIR\n");
        return 2;
    }
    folder = argv[2];
    listener = listen_on((uint16_t)strtol(argv[1], NULL, 10));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &accepting) == 0);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            int fd = events[i].data.ptr ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);

            if (events[i].data.ptr) {
                relay(events[i].data.ptr);
            } else if (fd >= 0) {
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                (void)add_side(fd, true);
            }
        }
    }
}
