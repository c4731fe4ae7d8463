/*
 * struct server: the worker's HTTP/1.1 server on inherited listening sockets, made of libh2o
 * 2.2.5, and the drive of the worker's own loop: its epoll descriptor sits in libh2o's loop as one
 * readable socket, so engine connections, timers and pipes run between requests.
 *
 * The router in front has cleaned all framing; bodies arrive whole. libh2o forgets a connection
 * while its handler waits, so every accepted descriptor is also watched for EPOLLRDHUP in the
 * worker's own loop, from accept to close: a client that leaves is seen at once, whatever the
 * exchange is doing. Only files of this folder that include server_internal.h see h2o.h.
 *
 * Routers may lend clients' own connections (common/net/lending.h, lent.c): these have the very
 * heads that a router has judged.
 */
#ifndef RG_SERVE_SERVER_H
#define RG_SERVE_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct exchange;
struct loop;
struct server;

struct server_options {
    size_t max_body_bytes;       /* the router refused longer ones already */
    size_t max_connections;      /* more wait in the socket's queue */
    size_t max_unfinished_bytes; /* limit of all incomplete bodies; 0: none. Above it, the largest
                                    is answered 429 and its connection closed */
    bool (*packs)(struct str request_line); /* whether it is worth it (packed_input.h), because
                                               helpers read the body; NULL: never */
    struct str (*owner)(
        const struct exchange *x); /* owner of a request, by which waiting requests share the loop;
                                      borrowed from x. NULL: all have one owner */
    bool (*finishes)(void *ctx, const struct exchange *x); /* whether x, which is not begun, is to
                                                              be begun though its peer has left: its
                                                              handler calls exchange_finish. NULL:
                                                              never; ctx: the handler's */
    void (*on_lent)(
        void *ctx); /* a request has come on a client's connection that a router has lent */
    void (*on_unfinished)(void *ctx, size_t bytes, bool refused); /* their sum has changed */
};

typedef void (*server_handler_fn)(void *ctx, struct exchange *x);

/* Makes a server that runs `loop` inside libh2o's (loop_embed). */
int server_new(struct loop *loop, const struct server_options *o, server_handler_fn handler,
               void *ctx, struct server **ret, struct err *e);

/* Other limits: of one body that begins from now on, and of all that are not complete. */
void server_limit_bodies(struct server *s, size_t max_bytes, size_t max_unfinished_bytes);

/* Accepts from fd (unix or TCP, non-blocking, listening), which stays the caller's. */
void server_listen(struct server *s, int fd);

/* Turns both loops until server_stop; then it may be run again. */
void server_run(struct server *s);
void server_stop(struct server *s);

/* Accepts no new connections; the listener is not closed. Answers contain "Connection: close",
 * except to peers that confirm, which close after their confirmation. Peers are asked to begin no
 * request on idle connections. Requests that have begun are served. */
void server_drain(struct server *s);

/* Exchanges that are not answered to the last byte. While draining: also requests that have not
 * come whole, and for 5 s connections that the peer has not closed; later those are shut. */
size_t server_busy(struct server *s);

/* Present memory of requests and answers: bodies, complete or not; answers that wait to be read. */
struct server_bytes {
    size_t bodies, answers;
};

struct server_bytes server_bytes(const struct server *s);

/* Closes all connections; waiting exchanges see `closed`. */
void server_free(struct server *s);

#endif
