/*
 * The exchange of one request: forwards the head without its hop-by-hop lines, streams both bodies
 * with back-pressure, and relays early and interim answers. Sends the request a second time if an
 * idle link was dead. Never completes an answer that broke off.
 */
#ifndef RG_ROUTER_RELAY_H
#define RG_ROUTER_RELAY_H

#include "router/conn.h"

/* Reports whether the request goes to a different node of the fleet, and its client waits for 100
 * Continue or it is too long to be kept for a second node. Then only its head is sent at first
 * (c->offered): a node that no longer has the place refuses it, and the body is still in the
 * client's socket. */
bool relay_offers(const struct conn *c, int upstream);

/* Starts the exchange of the parsed request hub->head, whose bytes are `head`. c->up is begun.
 * `body` has the first bytes of its body, already scanned. The state of c is RELAY then. Returns 0,
 * or -1 with *e if no worker can be reached. */
int relay_start(struct conn *c, int upstream, struct str head, struct str body, struct err *e);

/* Moves bytes in both directions until neither can continue, or the turn's share is used up.
 * Returns the result; *e is set with VERDICT_REFUSE. Never returns MORE or LOST. HOLD: c->replay
 * has the request (holds_begin). */
enum verdict relay_pump(struct conn *c, struct err *e);

/* Ends the exchange with an error: the node did not accept the body within its time (c->offered).
 * Waits on if it drains by now. */
void relay_refuse_offer(struct conn *c);

/* Reports whether the worker must still get bytes of a completely received call, although its
 * client leaves (--on-disconnect). */
bool relay_owes(const struct conn *c);

#endif
