/*
 * The entry for every request, and the data plane's handlers. Routes of the control plane stand in
 * one table (routes.def); all other paths are the data plane's. Keys are checked here and nowhere
 * else.
 */
#ifndef RG_API_DISPATCH_H
#define RG_API_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct err;
struct exchange;
struct service;
struct service_request;

/* Handles one request (server_handler_fn; ctx is the struct service). */
void dispatch_request(void *ctx, struct exchange *x);

/* Whether the body of a request that begins so may be packed while it comes: it is a model call's,
 * so there may be pictures in it, and helpers read it. */
bool dispatch_packs(struct str request_line);

/* Whose request it is, so that each gets his turns when many wait: the session that its path names,
 * or else the session key that it shows; borrowed from the request, empty for others. */
struct str dispatch_owner(const struct exchange *x);

/* server_options.finishes; ctx is the struct service: a model call with --on-disconnect finish. */
bool dispatch_finishes(void *ctx, const struct exchange *x);

/* api_call_entry.c: the data plane; r->rest is the path, with or without /v1. */
void api_call_handle(struct service_request *r);

/* Whether a request with that method and rest of its path is a model call, and no count of tokens
 * or anything else. */
bool api_call_is_model(struct str method, struct str rest);

/* Refuses a request of this path in its dialect's form. */
void api_call_refuse(struct service_request *r, const struct err *e);

/* models.c: one model by name, or all for an empty one (which may stand behind a slash). */
void models_get(struct service_request *r, struct str name);

/* stored.c: a response by its id. */
void stored_get(struct service_request *r, struct str id);

/* known_bodies.c: bytes that the data plane holds beside requests; once a second, those of sessions
 * that are here no more and what is above the limit go; and their end: no request is left. */
size_t dispatch_held_bytes(const struct service *a);
void dispatch_sweep(struct service *a);
void dispatch_done(struct service *a);

#endif
