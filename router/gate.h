/*
 * The gate: refuses requests by the head alone, before the body is read or a worker is involved. If
 * keys are enabled, most bad requests end here. A request that passes is checked again by the
 * worker, which knows what each route accepts.
 */
#ifndef RG_ROUTER_GATE_H
#define RG_ROUTER_GATE_H

#include <stdbool.h>

#include "common/base/str.h"

struct conn;
struct err;
struct http1_head;
struct hub;
struct keys;
struct route;

/* Returns the keys that requests are checked with. NULL: there are no admin keys, or this router
 * cannot verify all keys (session keys of other nodes, without --key-secret-file), so workers do.
 */
const struct keys *gate_keys(const struct hub *h);

/* Returns the METRIC_DIALECT_ label of a target: that of a model call or a count of tokens, else
 * METRIC_DIALECT_CONTROL. */
unsigned gate_dialect(struct str target);

/* Checks the head of a request: the browser gate (browser_gate.h), limits, rules of HTTP/1.1 for
 * servers, and keys. c: its connection, with the flow of its body begun. Sets *ret_upstream to its
 * upstream; -1: any worker. Keys of a peer's request are checked by the peer. Returns 0, or -1 with
 * the reason. ERR_MISSING_KEY and ERR_WRONG_SCOPE count as refusals of a key. ERR_MISDIRECTED: the
 * worker is a different node's. ERR_LOOP: that node has forwarded the request here. ERR_NO_OWNER:
 * no node of the fleet serves its place now. */
int gate_check(const struct conn *c, const struct http1_head *head, const struct route *route,
               int *ret_upstream, struct err *e);

/* Admits a request that has passed. If it goes to a worker or the dispatcher (with a valid key, if
 * this router verifies keys), its connection is not closed in favour of others any longer. The
 * connection counts under its key. Returns -1 with ERR_OVERLOADED (counted) if that key has reached
 * its limit of connections. */
int gate_admit(struct conn *c, const struct route *route, struct err *e);

/* Reports whether each connection ends with its next answer. Clients of a node that leaves its
 * fleet connect again, to another node if a front chooses. */
bool gate_ends_connections(const struct hub *h);

#endif
