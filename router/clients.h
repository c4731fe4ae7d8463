/*
 * The clients of a router: their connections from accept to close, one request after the other. All
 * events of a connection arrive in clients.c, which acts on the verdicts of the files below it (see
 * conn.h).
 */
#ifndef RG_ROUTER_CLIENTS_H
#define RG_ROUTER_CLIENTS_H

#include <stdbool.h>

struct err;
struct hub;
struct str;

/* Prepares the hub for connections: sets hub->run and makes hub->lendings. Call it before the first
 * connection. */
void clients_init(struct hub *h);

/* Takes ownership of an accepted socket, which counts under `address` (callers.h). */
void clients_add(struct hub *h, int fd, struct str address);

/* Takes ownership of a socket beyond the limit: answers with the error and closes it. TLS: closes
 * it without an answer. */
void clients_refuse(struct hub *h, int fd, struct str address, const struct err *e);

/* Closes the oldest connection without a request that passed the gate. Returns false if there is
 * none. */
bool clients_make_room(struct hub *h);

/* Closes connections without a running request and without bytes in the socket. Some wait for a
 * short time for a request. For the drain. */
void clients_close_idle(struct hub *h);

/* Answers held requests. Returns whether there were some. */
bool clients_end_held(struct hub *h);

/* Closes connections whose request no process serves. For the drain after a failed start. */
void clients_close_unserved(struct hub *h);

/* Closes all connections at once. */
void clients_close_all(struct hub *h);

#endif
