/*
 * The gate: refuses requests by the head alone, before a byte of the body is read or a worker is
 * asked. With keys in use these are most of the bad requests. A request that passes is checked
 * again by the worker, which knows what each route accepts.
 */
#ifndef RG_ROUTER_GATE_H
#define RG_ROUTER_GATE_H

#include "common/base/str.h"

struct conn;
struct err;
struct http1_head;
struct hub;
struct keys;
struct route;

/* The keys that this gateway's requests are held to; NULL: no admin keys are set, or this router
 * cannot verify all (session keys of other nodes, without --key-secret-file): workers do. */
const struct keys *gate_keys(const struct hub *h);

/* The METRIC_DIALECT_ label of a request for this target: of a model call or a count of tokens,
 * else METRIC_DIALECT_CONTROL. */
unsigned gate_dialect(struct str target);

/* Checks the head of a request: the browser gate (browser_gate.h), limits, rules of HTTP/1.1 for
 * servers, keys. Returns -1 and the reason if it is refused. ERR_MISSING_KEY and ERR_WRONG_SCOPE
 * are counted as refusals of a key. ERR_MISDIRECTED: the worker is another node's; ERR_LOOP: that
 * node has forwarded it here. c: its connection, with the flow of its body begun. *ret_upstream:
 * where it goes, -1: to any worker. Keys of a peer's request are the peer's to check.
 * ERR_NO_OWNER: no node of the fleet serves its place now. */
int gate_check(const struct conn *c, const struct http1_head *head, const struct route *route,
               int *ret_upstream, struct err *e);

/* Admits a request that has passed. If it goes to a worker or the dispatcher (with a valid key, if
 * this router verifies keys), its connection is no longer closed in favour of others. The
 * connection counts under the key that it has proved. -1 and ERR_OVERLOADED (counted) if that key
 * has its share of connections. */
int gate_admit(struct conn *c, const struct route *route, struct err *e);

#endif
