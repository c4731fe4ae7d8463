/*
 * struct server: the worker's HTTP/1.1 server on inherited listening sockets, made of libh2o 2.2.5.
 * The worker's own loop runs libh2o's (server.c).
 *
 * The router has checked all framing; bodies arrive complete. libh2o does not watch a connection
 * while its handler waits. So the worker's own loop watches every accepted descriptor for
 * EPOLLRDHUP from accept to close: a client that leaves is noticed at once. Only files of this
 * folder that include server_internal.h use h2o.h.
 *
 * Routers may lend the connections of clients (common/net/lending.h, lent.c). These have exactly
 * the heads that a router has checked.
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
    size_t max_body_bytes;  /* longest body; the router refused longer ones already */
    size_t max_connections; /* further connections wait in the socket's queue */
    /* limit of all incomplete bodies; 0: none. If it is exceeded, the largest is answered 429 and
     * its connection is closed */
    size_t max_unfinished_bytes;
    /* whether a request with this line is worth packing (packed_input.h) because helpers read its
     * body; NULL: never */
    bool (*packs)(struct str request_line);
    /* owner of a request, by which waiting requests share the loop; borrowed from x. NULL: all have
     * one owner */
    struct str (*owner)(const struct exchange *x);
    /* whether x, whose peer has left before it began, must begin anyway; its handler calls
     * exchange_finish. NULL: never. ctx: the handler's */
    bool (*finishes)(void *ctx, const struct exchange *x);
    /* called when a request has come on a client's connection that a router has lent */
    void (*on_lent)(void *ctx);
    /* called when the sum of unfinished bytes has changed */
    void (*on_unfinished)(void *ctx, size_t bytes, bool refused);
};

typedef void (*server_handler_fn)(void *ctx, struct exchange *x);

/* Makes a server on `loop`. Returns -1 with ERR_IO if libh2o's loop cannot be watched. */
int server_new(struct loop *loop, const struct server_options *o, server_handler_fn handler,
               void *ctx, struct server **ret, struct err *e);

/* Changes the limits: of one body that begins from now on, and of all incomplete bodies together.
 */
void server_limit_bodies(struct server *s, size_t max_bytes, size_t max_unfinished_bytes);

/* Accepts from fd (unix or TCP, non-blocking, listening), which stays the caller's. */
void server_listen(struct server *s, int fd);

/* Runs the loop until server_stop. May be called again afterwards. */
void server_run(struct server *s);
void server_stop(struct server *s);

/* Accepts no new connections; the listener is not closed. Answers contain "Connection: close",
 * except to peers that confirm, which close after their confirmation. Peers are asked to begin no
 * request on idle connections. Requests that have begun are served. */
void server_drain(struct server *s);

/* Returns the number of exchanges whose answers are not complete. While draining, incomplete
 * requests count, too. Connections that the peer has not closed count for 5 s, then they are shut.
 */
size_t server_busy(struct server *s);

/* Present memory of requests and answers: bodies, complete or not, and answers that clients have
 * not read yet. */
struct server_bytes {
    size_t bodies, answers;
};

struct server_bytes server_bytes(const struct server *s);

/* Closes all connections and frees s. Waiting exchanges get `closed`. */
void server_free(struct server *s);

#endif
