/*
 * Which node a request goes to: this one, a peer (--peer), or the owner of its place in a fleet. A
 * request that a different node forwarded here goes no further.
 */
#ifndef RG_ROUTER_NODE_GATE_H
#define RG_ROUTER_NODE_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct http1_head;
struct hub;
struct route;

/* Decides whether a different node of the fleet forwards the request. If so, HTTP1_FORWARDED has
 * that node's name from now on. Else the head counts as one without that header, because a client
 * has written it. Does nothing without a fleet. */
void node_gate_believe(const struct hub *h, struct http1_head *head);

/* Finds the upstream of a request that is not local; -1 in *ret_upstream: any worker. Returns -1
 * and ERR_MISDIRECTED (the index is a different node's), ERR_LOOP (that node has forwarded it
 * here), or in a fleet ERR_NO_OWNER (no node serves the place now), ERR_UNKNOWN_SESSION. */
int node_gate_find(const struct hub *h, const struct http1_head *head, const struct route *route,
                   int *ret_upstream, struct err *e);

/* No place of the place table. */
#define NODE_GATE_NO_PLACE (UINT32_MAX - 1)

/* The place of a request that is a worker's or the dispatcher's (place_table.h). Any other request
 * has NODE_GATE_NO_PLACE. */
uint32_t node_gate_place(const struct route *route);

#endif
