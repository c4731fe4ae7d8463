/*
 * struct door: a listening Unix socket, in its own folder below /tmp. The tested server uses its
 * descriptor, and the test connects to it.
 */
#ifndef RG_UNIT_DOOR_H
#define RG_UNIT_DOOR_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "testing.h"

struct door {
    char folder[64], path[100];
    int fd; /* -1 after it was closed */
};

/* Makes only the folder, for a socket (path) that another function makes. */
static inline void door_folder(struct door *d)
{
    *d = (struct door){.folder = "/tmp/rg_unit_XXXXXX", .fd = -1};
    cr_assert_not_null(mkdtemp(d->folder));
    (void)snprintf(d->path, sizeof(d->path), "%s/s", d->folder);
}

static inline struct sockaddr_un door_address(const struct door *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", d->path);
    return at;
}

/* Listens at d->path. Accepting never blocks. */
static inline void door_listen(struct door *d)
{
    struct sockaddr_un at = door_address(d);

    d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    cr_assert_eq(bind(d->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(listen(d->fd, 8), 0);
}

static inline void door_open(struct door *d)
{
    door_folder(d);
    door_listen(d);
}

/* Connects to the door. The caller closes the descriptor. */
static inline int door_connect(const struct door *d)
{
    struct sockaddr_un at = door_address(d);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    cr_assert_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static inline void door_close(struct door *d)
{
    if (d->fd >= 0)
        (void)close(d->fd);
    (void)unlink(d->path);
    (void)rmdir(d->folder);
}

#endif
