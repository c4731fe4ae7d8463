/*
 * Where a request goes: the id in the path, or in the session key, names the worker. Pure: a head
 * in, a struct route out; paths are judged on their raw bytes, nothing is decoded or normalised,
 * and the workers read them alike.
 *
 *     /sessions/w<idx>-<32 hex>...                        worker idx
 *     any other path with rga-<id>-<mac> or rgr-<id>-<mac> worker idx of the id, but for
 *                                                         /sessions, /ui and /admin
 *     /health, /ready, /metrics                           the router itself
 *     all the rest                                        any worker
 *
 * Whether such a worker exists is not known here (see upstreams.h), and no key is checked: the
 * worker does that.
 */
#ifndef RG_ROUTER_ROUTE_H
#define RG_ROUTER_ROUTE_H

#include <stdint.h>

#include "common/base/str.h"
#include "common/net/http1.h"

enum route_kind { ROUTE_ANY, ROUTE_WORKER, ROUTE_HEALTH, ROUTE_READY, ROUTE_METRICS };

struct route {
    enum route_kind kind;
    uint32_t index;     /* ROUTE_WORKER: the index in the id */
    bool named;         /* ROUTE_ANY although the path or key holds something in an id's place */
    bool messages;      /* a path of Anthropic's Messages API */
    struct str session; /* the id in the path when well-formed, else absent; borrows the head */
};

void route_find(const struct http1_head *h, struct route *ret);

/* The token of Authorization: Bearer; absent when there is none. */
struct str route_bearer(const struct http1_head *h);

#endif
