/*
 * Lending of clients' connections to workers (common/net/lending.h), the router's side. After
 * --lend-after requests in a row that one worker serves, an idle connection is lent to it: its next
 * requests need no relay. It comes back when a request comes that is not like them, when it has
 * been idle for a while, and when either process ends. Then it needs twice as many requests, unless
 * the worker has served some.
 *
 * A lent connection is still the router's: it counts for its address and key, and the router has
 * its descriptor.
 */
#ifndef RG_ROUTER_LENDINGS_H
#define RG_ROUTER_LENDINGS_H

#include <stdbool.h>
#include <stddef.h>

struct conn;
struct hub;
struct lendings;
struct str;

/* Calls `back` for each connection that has come back and waits for a request in state HEAD. Its
 * bytes so far are in its `in`; its socket was not read. */
typedef void (*lendings_back_fn)(struct conn *c);
struct lendings *lendings_new(struct hub *h, lendings_back_fn back);

/* Closes the channels: what is lent must be closed before. NULL is accepted. */
void lendings_free(struct lendings *l);

/* Notes whether c may be lent after the request in hub->head, which goes to that upstream. */
void lendings_note(struct conn *c, int upstream);

/* c is in state HEAD, and nothing of a request has come. Lends it, if it may be: true, its state is
 * LENT. */
bool lendings_lend(struct conn *c);

/* Wants all back: the router drains. */
void lendings_recall(struct lendings *l);

#endif
