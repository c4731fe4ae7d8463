/*
 * Sends answers of the control plane and errors of all planes: JSON bodies, error bodies in the
 * caller's dialect, x-should-retry, Retry-After. Counts them in the metrics.
 */
#ifndef RG_SERVICE_RESPOND_H
#define RG_SERVICE_RESPOND_H

struct buf;
struct dialect;
struct err;
struct exchange;
struct service;
struct service_request;

void respond_json(struct service_request *r, const struct buf *body);
void respond_empty(struct service_request *r, int status);

/* Sends an error. dialect NULL: in OpenAI's form. */
void respond_error(struct service_request *r, const struct dialect *d, const struct err *e);

/* Like respond_error, for callers without a service_request. */
void respond_error_to(struct service *a, struct exchange *x, const struct dialect *d,
                      unsigned label, const char *request_id, const struct err *e);

/* Counts an answer of this status. */
void respond_count(struct service *a, unsigned dialect, int status);

#endif
