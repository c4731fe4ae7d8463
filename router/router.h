/*
 * The router process: a streaming HTTP/1.1 relay between agents and session-workers. It reads a
 * request head, finds the worker by the id in the path or in the session key, and streams both
 * directions with bounded memory. It has no state that a different router needs.
 *
 * Upstreams are the workers' sockets in the run folder, or those of the settings (`rollgate
 * route`). In both cases the board's slots show which of them are in use and ready. Settings that a
 * reload may change are read again for each request.
 */
#ifndef RG_ROUTER_ROUTER_H
#define RG_ROUTER_ROUTER_H

#include <stddef.h>

struct buf;
struct config;
struct heritage;

/* Runs the router process after the fork. Serves h->listen_fd until it must drain (see heritage.h),
 * and gives running requests the grace time to finish. Returns the exit status. Everything in h
 * must outlive the call. */
int router_run(const struct heritage *h);

/* Appends a line for each setting that a router cannot start with. */
void router_check(const struct config *c, struct buf *mistakes);

/* Returns how many idle connections a router can hold with that number of descriptors. */
size_t router_capacity(size_t descriptors);

#endif
