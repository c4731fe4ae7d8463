/*
 * struct front: the listening socket of a router. Accepts in batches; beyond the connection limit
 * it answers 503, and when the process has no descriptors left it stops accepting for a moment
 * instead of spinning. The supervisor keeps its own copy of the socket.
 */
#ifndef RG_ROUTER_FRONT_H
#define RG_ROUTER_FRONT_H

#include "router/hub.h"

struct front {
    struct loop_io io;
    struct loop_timer pause;
    struct hub *hub;
    int fd;
    size_t max_connections;
};

/* Sets the socket options that accepted connections inherit and starts accepting. 0 / -1. */
int front_init(struct front *f, struct hub *h, struct err *e);

/* Takes over the settings' connection limit. */
void front_reload(struct front *f);

/* The router has been told to end. Alone (retired, replaced): takes what is queued now and closes
 * the socket, so that nothing more is queued here. With the whole service: goes on accepting,
 * because new requests are to hear 503 `draining` while running ones finish. */
void front_drain(struct front *f);

/* Stops accepting; a zeroed front is accepted. */
void front_done(struct front *f);

#endif
