/*
 * The handlers behind routes.def and the data plane. Each answers the request, at once or later.
 */
#ifndef RG_API_HANDLERS_H
#define RG_API_HANDLERS_H

#include "worker/api/api.h"
#include "worker/turn/ledger.h"

struct dialect;

/* create.c */
void control_create(struct api_request *r);

/* control.c */
void control_state(struct api_request *r);
void control_delete(struct api_request *r);
void control_reward(struct api_request *r);
void control_complete(struct api_request *r);
void control_abort(struct api_request *r);

/* Refuses, with e, when there is no room for so many more sessions. */
int control_room(struct api *a, int64_t count, struct err *e);

/* The body as an object, or NULL when there is none. -1 and e: it is something else. */
int control_body(struct api_request *r, struct arena *a, const struct json **ret, struct err *e);

/* The same for FINALIZE and EXPIRE: the sinks are promised the session's export, made with these
 * options (NULL: the defaults), and get it. */
struct export_options;
int control_close(struct api *a, struct session *s, enum session_end how,
                  const struct export_options *o, struct ledger_done done, struct err *e);

/* wait.c, listing.c, exporting.c, admin.c */
void wait_get(struct api_request *r);
void listing_get(struct api_request *r);
void exporting_trajectories(struct api_request *r);
void exporting_finalize(struct api_request *r);
void exporting_samples(struct api_request *r);
void admin_weight_version(struct api_request *r);
void admin_pause(struct api_request *r);
void admin_resume(struct api_request *r);

/* The worker ends: a pause that still waits is over. */
void admin_done(struct api *a);

/* call.c: the data plane; r->rest is the path, with or without /v1. */
void call_handle(struct api_request *r);

/* The same path's refusal, in its dialect's shape. */
void call_refuse(struct api_request *r, const struct err *e);

/* models.c: one model by name, or all for an empty one (which may stand behind a slash). */
void models_get(struct api_request *r, struct str name);

/* stored.c: a response by its id */
void stored_get(struct api_request *r, struct str id);

/* The session of a control request, for reading (ended ones while they are kept) or for change;
 * NULL and e. */
struct session *control_find(struct api_request *r, bool reading, struct err *e);

#endif
