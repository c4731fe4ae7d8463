/*
 * The router process: a streaming HTTP/1.1 relay between agents and session-workers on the loop of
 * common/os. It reads a request head, finds the worker by the id in the path or in the session
 * key, and streams both ways with bounded memory; it holds no state that another router needs.
 *
 * Upstreams are the workers' sockets in the run folder, or, when the settings name upstreams
 * (`rollgate route`), those; either way the board's worker slots say which of them are in use and
 * ready. Settings that a reload may change are read anew for each request.
 */
#ifndef RG_ROUTER_ROUTER_H
#define RG_ROUTER_ROUTER_H

#include <stddef.h>

struct buf;
struct config;
struct heritage;

/* Runs the router after the fork. Serves h->listen_fd until it is asked to drain (see heritage.h),
 * and lets running requests finish within the grace time. Returns the exit status. Everything in h
 * must outlive the call. */
int router_run(const struct heritage *h);

/* Appends a line for each setting that a router could not start with. */
void router_check(const struct config *c, struct buf *mistakes);

/* How many idle connections a router holds with that many descriptors. */
size_t router_capacity(size_t descriptors);

#endif
