/*
 * struct front: the listening sockets of a router. Accepts in batches; beyond the connection limit
 * (as set, or as there are descriptors: one for an idle connection, two for one with a request) the
 * oldest that has proved nothing makes room, or it answers 503; and when the process has none left
 * it stops accepting for a moment instead of spinning. The supervisor keeps its own copy of the
 * socket.
 */
#ifndef RG_ROUTER_FRONT_H
#define RG_ROUTER_FRONT_H

#include "common/os/loop.h"
#include "common/proc/board.h"
#include "router/hub.h"

struct err;
struct front;

struct front_listener {
    struct loop_io io;
    struct front *front;
    int fd;
};

struct front {
    struct front_listener *listeners[BOARD_ROUTERS_MAX]; /* the own one and adopted ones */
    unsigned n;
    struct loop_timer pause; /* active: nothing is accepted */
    struct hub *hub;
    size_t max_connections;         /* as set, 0: as many as there are descriptors */
    size_t max_address_connections; /* 0: none of its own */
    size_t capacity;                /* connections and the links they use */
    size_t refusals;                /* beyond either */
};

/* How many connections that many descriptors allow when none has a request. */
size_t front_capacity(size_t descriptors);

/* Sets the socket options that accepted connections inherit and starts accepting. 0 / -1. */
int front_init(struct front *f, struct hub *h, struct err *e);

/* Takes over the settings' connection limit. */
void front_reload(struct front *f);

/* Accepts on one more socket, which becomes its own: that of a router that was retired. */
int front_add(struct front *f, int fd, struct err *e);

/* Accepts all that is queued now on sockets that are listened on. */
void front_take_queued(struct front *f);

/* The router has been told to end. Alone (retired, replaced): stops accepting; another router has
 * the socket or will. With the whole service: goes on, because new requests are to hear 503
 * `draining` while running ones finish. */
void front_drain(struct front *f);

/* Stops accepting; a zeroed front is accepted. */
void front_done(struct front *f);

#endif
