/*
 * struct passthrough: paths below a session that no dialect serves go to the engine as they are and
 * its answer comes back as it is; nothing is recorded. Only the engine's own key goes along, never
 * the agent's. Answers are relayed with backpressure when they are 200, else held whole (bounded).
 */
#ifndef RG_API_PASSTHROUGH_H
#define RG_API_PASSTHROUGH_H

#include "worker/api/api.h"

struct passthrough;

/* From the --engine settings; engines without a URL (builtin) are left out. NULL and e: a key file
 * or URL that cannot be used. */
struct passthrough *passthrough_new(struct loop *loop, const struct config *c, struct err *e);
void passthrough_free(struct passthrough *p);

/* Forwards the request (r->rest and its query) to the session's engine; 404 where there is none. */
void passthrough_serve(struct api_request *r);

#endif
