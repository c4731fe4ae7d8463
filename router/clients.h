/*
 * The clients of a router: their connections from accept to close, one request after the other. The
 * top of what conn.h draws: everything that happens to a connection comes through clients.c, which
 * acts on the verdicts of those below.
 */
#ifndef RG_ROUTER_CLIENTS_H
#define RG_ROUTER_CLIENTS_H

#include <stdbool.h>

struct err;
struct hub;
struct str;

/* Before the first connection: sets hub->run. */
void clients_init(struct hub *h);

/* Takes over an accepted socket that counts under `address` (callers.h). */
void clients_add(struct hub *h, int fd, struct str address);

/* The same for one that is over the limit: answers the error and closes.
 * TLS: closes without an answer. */
void clients_refuse(struct hub *h, int fd, struct str address, const struct err *e);

/* Closes the oldest connection that has proved nothing: none of its requests went to a worker.
 * Returns whether there was one. */
bool clients_make_room(struct hub *h);

/* Closes what has no request running and none waiting in the socket; for the drain. */
void clients_close_idle(struct hub *h);

/* Closes all of them at once. */
void clients_close_all(struct hub *h);

#endif
