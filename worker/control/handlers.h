/*
 * The handlers behind routes.def and the data plane. Each answers the request, at once or later.
 */
#ifndef RG_CONTROL_HANDLERS_H
#define RG_CONTROL_HANDLERS_H

#include "worker/ledger/ledger.h"
#include "worker/service/service.h"

struct dialect;

/* create.c */
void control_create(struct service_request *r);

/* sessions.c */
void control_state(struct service_request *r);
void control_delete(struct service_request *r);
void control_reward(struct service_request *r);
void control_complete(struct service_request *r);
void control_abort(struct service_request *r);

/* Refuses, with e, when there is no room for so many more sessions. */
int control_room(struct service *a, int64_t count, struct err *e);

/* The body as an object, or NULL when there is none. -1 and e: it is something else. */
int control_body(struct service_request *r, struct arena *a, const struct json **ret,
                 struct err *e);

/* The same for FINALIZE and EXPIRE: the sinks are promised the session's export, made with these
 * options (NULL: the defaults), and get it. */
struct export_options;
int control_close(struct service *a, struct session *s, enum session_end how,
                  const struct export_options *o, struct ledger_done done, struct err *e);

/* wait.c, listing.c, exporting.c, admin.c */
void wait_get(struct service_request *r);
void listing_get(struct service_request *r);
void exporting_trajectories(struct service_request *r);
void exporting_finalize(struct service_request *r);
void exporting_samples(struct service_request *r);
void admin_weight_version(struct service_request *r);
void admin_pause(struct service_request *r);
void admin_resume(struct service_request *r);

/* The worker ends: a pause that still waits is over. */
void admin_done(struct service *a);

/* api_call.c: the data plane; r->rest is the path, with or without /v1. */
void api_call_handle(struct service_request *r);

/* The same path's refusal, in its dialect's shape. */
void api_call_refuse(struct service_request *r, const struct err *e);

/* models.c: one model by name, or all for an empty one (which may stand behind a slash). */
void models_get(struct service_request *r, struct str name);

/* stored.c: a response by its id */
void stored_get(struct service_request *r, struct str id);

/* The session of a control request, for reading (ended ones while they are kept) or for change;
 * NULL and e. */
struct session *control_find(struct service_request *r, bool reading, struct err *e);

#endif
