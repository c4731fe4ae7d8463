/*
 * Where the stub engine of a bench's own process takes connections: a socket of 127.0.0.1 on a port
 * that the kernel chooses, and the loop that a thread of the bench drives. Connections and loop
 * are ended by whoever opened it.
 */
#ifndef RG_BENCH_DOOR_H
#define RG_BENCH_DOOR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/os/loop.h"

struct door {
    struct loop_io io;
    struct loop *loop;
    uint16_t port;
    void (*on_connection)(struct loop *loop, int fd); /* its descriptor from now on */
};

static inline void door_event(struct loop_io *io, unsigned events)
{
    struct door *d = CONTAINER_OF(io, struct door, io);
    int fd, one = 1;

    (void)events;
    while ((fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        d->on_connection(d->loop, fd);
    }
}

static inline void door_open(struct door *d, void (*on_connection)(struct loop *loop, int fd))
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    struct err e;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    CHECK(bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 4096) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    d->port = ntohs(a.sin_port);
    d->on_connection = on_connection;
    d->loop = loop_new(&e);
    CHECK(d->loop && loop_add(d->loop, &d->io, fd, LOOP_IN, door_event, &e) == 0);
}

static inline void door_close(struct door *d)
{
    int fd = d->io.fd;

    loop_del(d->loop, &d->io);
    (void)close(fd);
    loop_free(d->loop);
}

#endif
