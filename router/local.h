/*
 * /health, /ready and /metrics: answered by the router from what the supervisor and the metrics
 * pages say, without touching a worker.
 */
#ifndef RG_ROUTER_LOCAL_H
#define RG_ROUTER_LOCAL_H

#include "router/route.h"

struct conn;
struct http1_head;

/* Makes the answer the exchange of c. h is the request's head. Returns 0; or -1
 * with *e if the request is refused. c is in state RELAY then. */
int local_answer(struct conn *c, const struct http1_head *h, enum route_kind what, struct err *e);

#endif
