/*
 * Events for viewers: GET /events (sessions of all workers, groups, queues, runners) and GET
 * /sessions/{id}/events (one session, and the tokens of its calls as they are sampled).
 *
 *   ledger, call -> struct watching -+-> feed of all: own viewers, siblings' viewers (local=1)
 *                                    +-> one feed for each session that is viewed
 *   siblings, dispatcher -- GET /events?local=1 --> relayed to viewers of this node (here=1) or all
 *   other nodes          -- GET /events?here=1 ---> relayed to viewers of all
 *
 * The worker that a client asks merges the streams of its siblings and of one worker of each other
 * node, so that a client needs one connection, to any worker. A worker follows others only while it
 * has a viewer. Without a viewer no hook is set, and no change is recorded.
 */
#ifndef RG_CONTROL_EVENTS_H
#define RG_CONTROL_EVENTS_H

#include "common/serve/reach.h"

struct exchange;
struct service;
struct str;

/* The events of the other processes, followed while there are viewers (event_sources.c). */
struct event_sources;

/* `relay` gets whole events, with ctx, and how far viewers must reach to get them. `lost` is called
 * when a source was cut off. */
struct event_sources *
event_sources_new(struct service *a, void (*relay)(void *ctx, struct str events, enum reach from),
                  void (*lost)(void *ctx, enum reach from), void *ctx);

/* Follows all sources within reach with the keys of this request. A later call replaces the
 * keys. */
void event_sources_follow(struct event_sources *s, const struct exchange *x, enum reach reach);

/* Leaves all sources beyond that reach. REACH_PROCESS: follows no source any more. */
void event_sources_leave(struct event_sources *s, enum reach reach);
void event_sources_free(struct event_sources *s); /* accepts NULL */

/* Frees the streams of sessions that have no viewer any more. */
void events_sweep(struct service *a);

/* Ends all streams when the worker ends. */
void events_end(struct service *a);
void events_free(struct service *a);

#endif
