/*
 * /health, /ready and /metrics: the router answers them from the board and the metrics' pages,
 * without a worker.
 */
#ifndef RG_ROUTER_LOCAL_H
#define RG_ROUTER_LOCAL_H

#include "router/route.h"

struct conn;
struct http1_head;

/* Makes the router's answer the exchange of c, whose state is RELAY then. h is the request's head.
 * Returns 0, or -1 with *e if the request is refused. */
int local_answer(struct conn *c, const struct http1_head *h, enum route_kind what, struct err *e);

#endif
