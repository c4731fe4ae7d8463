/*
 * Unfinished request bodies: their received bytes, their callers, and their speed. Workers keep a
 * body until it is complete. So if the budget of a session or an address is used up, the connection
 * with its largest body is refused (429). A body that trickles is cut (408).
 */
#ifndef RG_ROUTER_BODIES_H
#define RG_ROUTER_BODIES_H

#include "router/conn.h"

/* Counts bytes of c's body. Over a budget the connection with most of it is marked: its exchange
 * ends with its next turn (bodies_refused). */
void bodies_take(struct conn *c, size_t n);

/* Whether bytes of c may wait unseen in its socket (conn_gather): not where its callers could be
 * above a budget by what is unseen. */
bool bodies_may_gather(const struct conn *c);

/* Returns whether c was marked and its body is incomplete; *e says why it is refused. */
bool bodies_refused(struct conn *c, struct err *e);

/* The time that the client still has for its next bytes, in ms. Each byte buys some at
 * --min-body-rate, up to --body-timeout; only time in which we waited for it is used up. */
uint64_t bodies_patience_ms(struct conn *c);

#endif
