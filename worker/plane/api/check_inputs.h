/*
 * Checks the content of a control-plane request against inputs.def: a short body at once, a long
 * one in a helper thread, so that others do not wait. The result belongs to the request (r->body),
 * so that its handler does not read it again.
 */
#ifndef RG_API_CHECK_INPUTS_H
#define RG_API_CHECK_INPUTS_H

struct api_route;
struct body_read;
struct service;
struct service_request;

/* The request as it was given, on the loop, and its body as it was read, which is the callee's to
 * drop. */
typedef void (*inputs_passed_fn)(struct service_request *r, const struct api_route *route);

/* Takes the exchange over: calls `passed`, maybe before it returns, or answers what inputs_check
 * says. `r` is copied where that comes later. */
void check_inputs(struct service_request *r, const struct api_route *route,
                  inputs_passed_fn passed);

/* Frees what was read of a body; NULL is fine. */
void inputs_drop(struct service *a, struct body_read *body);

#endif
