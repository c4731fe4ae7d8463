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

/* Takes ownership of the exchange. Calls dispatch_handle with the parsed body, perhaps before it
 * returns, or answers the error of inputs_check. `r` is copied if the call comes later. */
void check_inputs(struct service_request *r, const struct api_route *route);

/* Frees a parsed body. Accepts NULL. */
void inputs_drop(struct service *a, struct body_read *body);

#endif
