/*
 * The exchange of one request: sends the head on without its hop-by-hop lines, streams both bodies
 * with backpressure, and relays early and interim answers. It resends once if an idle link was
 * dead, and never completes an answer that broke off.
 */
#ifndef RG_ROUTER_RELAY_H
#define RG_ROUTER_RELAY_H

#include "router/conn.h"

/* Starts the exchange for the parsed request hub->head, which came as the bytes `head`: c->up is
 * begun; `body` is what has come of it, already scanned. c is in state RELAY then. Returns 0, or -1
 * with *e if no worker can be reached. */
int relay_start(struct conn *c, int upstream, struct str head, struct str body, struct err *e);

/* Moves what can be moved in both directions. Returns what has become of the exchange; *e is set
 * with VERDICT_REFUSE. Never MORE or LOST. HOLD: c->replay has the request (holds_begin). */
enum verdict relay_pump(struct conn *c, struct err *e);

/* Whether all of a call's body has come, some of it waits for its worker, and --on-disconnect says
 * that the worker is to get it though the client leaves. */
bool relay_owes(const struct conn *c);

#endif
