/*
 * Describes the gateway's API: an index for people, OpenAPI 3.1 for programs. Both are written from
 * the tables that requests are checked against (routes.def, inputs.def, the dispatcher's paths.def,
 * the dialects' paths, err.def), so they always describe this gateway.
 */
#ifndef RG_API_OPENAPI_H
#define RG_API_OPENAPI_H

struct service_request;

/* Answer GET / and GET /openapi.json. */
void openapi_index(struct service_request *r);
void openapi_get(struct service_request *r);

#endif
