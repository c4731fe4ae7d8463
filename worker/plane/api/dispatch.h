/*
 * The entry for every request, and the data plane's handlers. Routes of the control plane are in
 * one table (routes.def); all other paths belong to the data plane. Keys are checked only here.
 */
#ifndef RG_API_DISPATCH_H
#define RG_API_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct api_route;
struct body_read;
struct err;
struct exchange;
struct service;
struct service_request;

/* Handles one request (server_handler_fn; ctx is the struct service). */
void dispatch_request(void *ctx, struct exchange *x);

/* Enters a request. body: parsed body of a control request whose inputs have passed; it is dropped.
 * NULL: not checked yet. was_held: it has waited for the fleet's store, or for its session. */
void dispatch_enter(struct service *a, struct exchange *x, struct body_read *body, bool was_held);

/* Calls the handler of a control request whose inputs have passed (r->body), or waits for its
 * session. Drops the body. */
void dispatch_handle(struct service_request *r, const struct api_route *route);

/* Reports whether the body of a request with this first line may be packed while it arrives: a
 * model call's, because it may have pictures and helpers read it. */
bool dispatch_packs(struct str request_line);

/* Returns the owner of a request, so that owners take turns when many wait: the session in its
 * path, or else in the session key that it shows; borrowed from the request, empty for others. */
struct str dispatch_owner(const struct exchange *x);

/* server_options.finishes; ctx is the struct service. True for a model call with --on-disconnect
 * finish. */
bool dispatch_finishes(void *ctx, const struct exchange *x);

/* api_call_entry.c: the data plane; r->rest is the path, with or without /v1. */
void api_call_handle(struct service_request *r);

/* Reports whether a request with that method and rest of its path is a model call, and not a count
 * of tokens or anything else. */
bool api_call_is_model(struct str method, struct str rest);

/* Refuses a request of this path in its dialect's form. */
void api_call_refuse(struct service_request *r, const struct err *e);

/* models.c: answers with one model by name, or with all if the name is empty (perhaps after a
 * slash). */
void models_get(struct service_request *r, struct str name);

/* stored.c: answers with a response by its id. */
void stored_get(struct service_request *r, struct str id);

/* known_bodies.c. Bytes that the data plane holds in addition to requests. The second function runs
 * once a second and frees bytes of sessions that are no longer here and those above the limit. The
 * third frees everything when no request is left. */
size_t dispatch_held_bytes(const struct service *a);
void dispatch_sweep(struct service *a);
void dispatch_done(struct service *a);

#endif
