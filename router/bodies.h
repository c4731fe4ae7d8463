/*
 * Unfinished request bodies: their received bytes, their callers, and their speed. Workers keep a
 * body in memory until it is complete. So if the bodies of a key or an address exceed its budget,
 * the connection with the largest one is refused (429). A body that arrives too slowly is refused
 * (408).
 */
#ifndef RG_ROUTER_BODIES_H
#define RG_ROUTER_BODIES_H

#include "router/conn.h"

/* Counts n bytes of c's body. If a budget is exceeded, marks the caller's connection with the
 * largest body: its exchange is refused in its next turn (bodies_refused). */
void bodies_take(struct conn *c, size_t n);

/* Reports whether bytes of c may wait unread in its socket (conn_gather). False if the callers'
 * bodies could exceed a budget because of the unread bytes. */
bool bodies_may_gather(const struct conn *c);

/* Reports whether c was marked and its body is incomplete. *e has the reason. Removes the mark. */
bool bodies_refused(struct conn *c, struct err *e);

/* Returns the time in ms that the client has for its next bytes. Each byte adds time at
 * --min-body-rate, up to --body-timeout. Only time in which we waited for the body is subtracted.
 */
uint64_t bodies_patience_ms(struct conn *c);

#endif
