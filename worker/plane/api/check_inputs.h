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

/* Called on the loop with the original request and its parsed body, which the callee must drop. */
typedef void (*inputs_passed_fn)(struct service_request *r, const struct api_route *route);

/* Takes ownership of the exchange. Calls `passed`, perhaps before it returns, or answers the error
 * of inputs_check. `r` is copied if the call comes later. */
void check_inputs(struct service_request *r, const struct api_route *route,
                  inputs_passed_fn passed);

/* Frees a parsed body. Accepts NULL. */
void inputs_drop(struct service *a, struct body_read *body);

#endif
