/*
 * Lending of clients' connections to workers (common/net/lending.h), the router's side. After
 * --lend-after requests in a row that one worker serves, an idle connection is lent to that worker:
 * its next requests need no relay. The connection returns when a different request arrives, when it
 * has been idle for a while, and when either process ends. Then it needs twice as many requests to
 * be lent again, unless the worker has served at least four.
 *
 * A lent connection still belongs to the router: it counts for its address and key, and the router
 * has its descriptor.
 */
#ifndef RG_ROUTER_LENDINGS_H
#define RG_ROUTER_LENDINGS_H

#include <stdbool.h>

struct conn;
struct hub;
struct lendings;

/* Receives each connection that has returned and waits for a request in state HEAD. The bytes that
 * the worker read are in its `in`; the socket was not read. */
typedef void (*lendings_back_fn)(struct conn *c);
struct lendings *lendings_new(struct hub *h, lendings_back_fn back);

/* Closes the channels and frees l. Lent connections must be closed before. Accepts NULL. */
void lendings_free(struct lendings *l);

/* Records whether c may be lent after the request in hub->head, which goes to that upstream (-1:
 * not to one worker). */
void lendings_note(struct conn *c, int upstream);

/* Lends c if it may be lent. c is in state HEAD, and no bytes of a request have arrived. Returns
 * true if its state is LENT now, or the loop refused its socket and it was closed. */
bool lendings_lend(struct conn *c);

/* Asks the workers to return all connections, because the router drains or a reload changed the
 * rules. */
void lendings_recall(struct lendings *l);

#endif
