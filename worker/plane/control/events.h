/*
 * Events for viewers: GET /events (sessions of all workers, groups, queues, runners) and GET
 * /sessions/{id}/events (one session, and the tokens of its calls as they come).
 *
 *   ledger, call -> struct watching -+-> feed of all: own viewers, siblings' viewers (local=1)
 *                                    +-> one feed a session that is looked at
 *   siblings, dispatcher -- GET /events?local=1 --> relayed to own viewers
 *
 * The worker that is asked merges its siblings' streams, so that a client holds one connection
 * however many workers there are, and may ask any of them. It follows them only while it has a
 * viewer. Without a viewer no hook is set, and no change is recorded.
 */
#ifndef RG_CONTROL_EVENTS_H
#define RG_CONTROL_EVENTS_H

struct exchange;
struct service;
struct str;
struct watching;

/* The events of the other processes, while there are viewers (event_sources.c). */
struct event_sources;

/* relay: gets whole events, with ctx. `lost`: a source was cut off. */
struct event_sources *event_sources_new(struct service *a,
                                        void (*relay)(void *ctx, struct str events),
                                        void (*lost)(void *ctx), void *ctx);

/* Follows all sources with the keys of this request. Another call replaces the keys. */
void event_sources_follow(struct event_sources *s, const struct exchange *x);
void event_sources_leave(struct event_sources *s); /* follows none */
void event_sources_free(struct event_sources *s);  /* NULL is fine */

/* Frees streams of sessions that have no viewer any more. */
void events_sweep(struct service *a);

/* Ends all streams: the worker ends. */
void events_end(struct service *a);
void events_free(struct service *a);

#endif
