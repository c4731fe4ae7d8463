/*
 * The exchange of one request: sends the head on without its hop-by-hop lines, streams both bodies
 * with backpressure, relays early and interim answers, resends once when an idle link turns out
 * dead, and never completes an answer that broke off.
 */
#ifndef RG_ROUTER_RELAY_H
#define RG_ROUTER_RELAY_H

#include "router/conn.h"

/* Starts the exchange for the parsed request hub->head: c->up is begun; `body` is what has come of
 * it, already scanned. Ends in state RELAY, whatever happens. */
void relay_start(struct conn *c, int upstream, struct str body);

/* Moves what can be moved; at the end of the exchange the state is another. */
void relay_pump(struct conn *c);

/* These bytes of the request go up now: they are kept beside those before them, unless it gets too
 * long for a second try. */
void relay_keep_more(struct conn *c, const struct iovec *iov);

/* The link ended before any byte of an answer, and the worker cannot have acted on the request.
 * Sends it once more on a new link, if it was kept. Returns whether it did. */
bool relay_resend(struct conn *c);

/* Counts and logs what a worker did wrong. */
void relay_blame_worker(const struct conn *c, const char *what);

/* Gives up on the worker: the client gets e instead of an answer. */
void relay_unavailable(struct conn *c, const struct err *e);

#endif
