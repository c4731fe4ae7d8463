/*
 * struct front: the listening sockets of a router. Accepts in batches. The connection limit is set,
 * or follows from the descriptors: one for an idle connection, two for one with a request. Beyond
 * it the oldest connection that has proved nothing is closed, or the new one gets 503. Without a
 * free descriptor the process stops accepting for a moment. The supervisor keeps its own copy of
 * the socket.
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
    size_t max_connections;         /* limit as set; 0: by the number of descriptors */
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

/* Handles the drain of the router. If it ends alone (retired, replaced), it stops accepting, since
 * another router has the socket or will have it. If the whole service ends, it accepts on: new
 * requests get 503 `draining` while running ones finish. */
void front_drain(struct front *f);

/* Stops accepting; a zeroed front is accepted. */
void front_done(struct front *f);

#endif
