/*
 * Held requests: those of a fleet whose place has no owner now, or whose owner did not take them.
 * Their sockets are not read. A request is tried again when the place table names a different
 * owner or a later epoch, and after some time if it names the same one. --fleet-hold after it was
 * first held it fails with 503 no_owner.
 */
#ifndef RG_ROUTER_HOLDS_H
#define RG_ROUTER_HOLDS_H

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct hub;

/* Begins to watch the place table. Does nothing without a fleet. */
void holds_init(struct hub *h);

/* Stops watching the place table. Held requests are not tried again. */
void holds_done(struct hub *h);

/* Whether a request that has no owner is to be held: not after --fleet-hold, and not by a router
 * that ends, unless its node leaves the fleet. */
bool holds_may_hold(const struct conn *c);

/* Holds the request of that place: its head is in c->in, in state HEAD, or c->replay has the
 * request, in state RELAY. */
void holds_begin(struct conn *c, uint32_t place);

/* Watches the node that the upstream is, which serves the request, until the exchange ends. If the
 * node is lost and its place has a new owner, the link is cut: that node may be frozen, and then
 * its links do not end. If the body is offered, the node may accept it until the end of
 * --fleet-hold, but at least for one lease (hold.accept_ms). */
void holds_watch_hop(struct conn *c, int upstream);

/* Returns the end of that time. A node that drains holds the request while calls of its place end:
 * it has --grace more. */
uint64_t holds_accept_ms(const struct conn *c);

/* The router drains. Tries all held requests a last time, unless its node leaves the fleet: then
 * they wait for the next owners of their places. */
void holds_drain(struct hub *h);

/* Tries all held requests a last time: the router ends. */
void holds_end_all(struct hub *h);

/* Ends the hold: c is in state HEAD, and its head is unread. */
void holds_end(struct conn *c);

#endif
