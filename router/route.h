/*
 * Where a request goes: the id in the path, or in the session key, names the worker. Pure: a head
 * in, a struct route out; paths are judged on their raw bytes, nothing is decoded or normalised,
 * and the workers read them alike.
 *
 *     /sessions/w<idx>-<32 hex>...                        worker idx
 *     any other path with rga-<id>-<mac> or rgr-<id>-<mac> worker idx of the id, but for
 *                                                         /sessions, /ui, /events, /stats, /admin
 *                                                         (presented.h)
 *     /groups, /queues, /attempts and what is below       the dispatcher
 *     /health, /ready, /metrics                           the router itself
 *     all the rest                                        any worker
 *
 * Whether such a worker exists is not known here (see upstreams.h), nor whether the request may go
 * there, or is another node's (see gate.h).
 */
#ifndef RG_ROUTER_ROUTE_H
#define RG_ROUTER_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/proc/proof.h"

struct http1_head;
struct keys;
struct presented;

enum route_kind {
    ROUTE_ANY,
    ROUTE_WORKER,
    ROUTE_DISPATCHER,
    ROUTE_HEALTH,
    ROUTE_READY,
    ROUTE_METRICS
};

struct route {
    enum route_kind kind;
    uint32_t index;     /* ROUTE_WORKER: the index in the id */
    bool named;         /* ROUTE_ANY although the path or key holds something in an id's place */
    bool messages;      /* a path of Anthropic's Messages API */
    bool open;          /* takes no key: the index, /openapi.json, the viewer's files */
    bool admins;        /* a path of the control plane that is no session's */
    bool renews;        /* an executor's renewal */
    struct str session; /* the id in the path when well-formed, else absent; borrows the head */
    struct str place;   /* id in the path, valid or not; absent: the path has no session */
    struct proof proof; /* proof of the key that the client sent */
};

/* Whether the router answers itself. */
static inline bool route_is_local(const struct route *r)
{
    return r->kind == ROUTE_HEALTH || r->kind == ROUTE_READY || r->kind == ROUTE_METRICS;
}

/* k: what keys are verified with; NULL: they are believed. -1 and ERR_INVALID for different keys;
 * all but the key's part is filled then, too. */
int route_find(const struct http1_head *h, const struct keys *k, struct route *ret, struct err *e);

/* The keys that the head shows. */
void route_keys(const struct http1_head *h, struct presented *ret);

#endif
