/*
 * Where a request goes: the id in the path, or in the session key, names the worker. Pure. Paths
 * are compared as raw bytes, without decoding or normalising, and workers compare them in the same
 * way.
 *
 *     /sessions/w<idx>-<32 hex>...                        worker idx
 *     any other path with rga-<id>-<mac> or rgr-<id>-<mac> worker idx of the id, except for
 *                                                         /sessions, /ui, /events, /stats, /admin
 *                                                         (presented.h)
 *     /groups, /queues, /attempts and paths below them    the dispatcher
 *     /health, /ready, /metrics                           the router itself
 *     all other paths                                     any worker
 *
 * upstreams.h decides whether such a worker exists. gate.h decides whether the request may go
 * there, or belongs to a different node.
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
    uint32_t index;     /* ROUTE_WORKER: index in the id */
    bool named;         /* the path or key has some text in the position of an id */
    bool messages;      /* a path of Anthropic's Messages API */
    bool open;          /* needs no key: the index, /openapi.json, the viewer's files */
    bool admins;        /* a path of the control plane outside of sessions */
    bool renews;        /* an executor's renewal */
    struct str session; /* valid id in the path, else absent; borrows the head */
    struct str place;   /* id in the path, even if not valid; absent: no session in the path */
    struct str node;    /* /stats and /fleet: node=NAME of the query, or absent; borrows the head */
    struct proof proof; /* proof of the key that the client sent */
};

/* Reports whether the router answers the request itself. */
static inline bool route_is_local(const struct route *r)
{
    return r->kind == ROUTE_HEALTH || r->kind == ROUTE_READY || r->kind == ROUTE_METRICS;
}

/* Finds the route of a request. k: verifies the client's keys; NULL: they are accepted without a
 * check. Returns -1 with ERR_INVALID if the head has different keys; *ret is complete then, except
 * for `proof`. */
int route_find(const struct http1_head *h, const struct keys *k, struct route *ret, struct err *e);

/* Collects the keys in the head. */
void route_keys(const struct http1_head *h, struct presented *ret);

#endif
