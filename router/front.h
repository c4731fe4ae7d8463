/*
 * struct front: the listening sockets of a router. It accepts in batches. The limit of connections
 * is set, or follows from the descriptors: one for an idle connection, two for one with a request.
 * Beyond the limit, the oldest connection without a request that passed the gate is closed, or the
 * new one gets 503. Without a free descriptor the router stops accepting for a moment. The
 * supervisor keeps its own copy of the socket.
 */
#ifndef RG_ROUTER_FRONT_H
#define RG_ROUTER_FRONT_H

#include "common/os/loop.h"
#include "common/proc/board.h"
#include "router/hub.h"

struct front;

struct front_listener {
    struct loop_io io;
    struct front *front;
    int fd;
};

struct front {
    struct front_listener *listeners[BOARD_ROUTERS_MAX]; /* its own sockets and adopted ones */
    unsigned n;
    struct loop_timer pause; /* active: nothing is accepted */
    struct hub *hub;
    size_t max_connections;         /* limit of the settings; 0: derived from the descriptors */
    size_t max_address_connections; /* limit for one address; 0: no limit */
    size_t capacity;                /* most connections and links together */
    size_t refusals;                /* most connections that are being refused */
};

/* Returns how many connections that number of descriptors allows if no connection has a request. */
size_t front_capacity(size_t descriptors);

/* Sets the socket options that accepted connections inherit, and starts accepting. Returns 0, or -1
 * with e. */
int front_init(struct front *f, struct hub *h, struct err *e);

/* Applies the settings' limits of connections again. */
void front_reload(struct front *f);

/* Accepts on an additional socket, that of a retired router. Takes ownership of fd. Returns 0, or
 * -1 with e. */
int front_add(struct front *f, int fd, struct err *e);

/* Accepts all connections that are queued now, unless accepting has stopped. */
void front_take_queued(struct front *f);

/* Handles the drain of the router. If this router ends alone (retired, replaced), it stops
 * accepting, because a different router has the socket or will have it. If the whole service ends,
 * it continues to accept: new requests get 503 `draining` while running ones finish. A node of a
 * fleet closes its port: clients and fronts connect to other nodes. */
void front_drain(struct front *f);

/* Stops accepting, and closes and frees the listeners. Accepts a zeroed front. */
void front_done(struct front *f);

#endif
