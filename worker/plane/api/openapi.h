/*
 * What the gateway serves, told by itself: an index for people, OpenAPI 3.1 for programs. Both are
 * written from the tables that requests are held against (routes.def, inputs.def, the dispatcher's
 * paths.def, the dialects' paths, err.def), so they cannot tell of another gateway than this one.
 */
#ifndef RG_API_OPENAPI_H
#define RG_API_OPENAPI_H

struct service_request;

/* GET / and GET /openapi.json. */
void openapi_index(struct service_request *r);
void openapi_get(struct service_request *r);

#endif
