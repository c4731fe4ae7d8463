/*
 * Sections of /openapi.json (openapi.h): the schemas of requests, and the errors of a route. All
 * functions write JSON members or values into the page.
 */
#ifndef RG_API_OPENAPI_PARTS_H
#define RG_API_OPENAPI_PARTS_H

#include <stdbool.h>

struct api_route;
struct dialect;
struct input;
struct json_out;

enum { PATH_MAX_LEN = 96 };

/* A route of any table, with its whole path. */
struct told_route {
    char path[PATH_MAX_LEN];
    const char *method, *summary, *plane;
    unsigned scopes;
    const struct api_route *inputs; /* rows of the route in inputs.def; or NULL */
    const struct dialect *dialect;  /* dialect of its requests; or NULL */
    /* names of parameters and fields of a dispatcher's route; or NULL */
    const char *query, *body;
    bool takes_body;
};

/* --- openapi_schemas.c --- */

/* Writes the schema of one row of inputs.def. */
void openapi_input(struct json_out *o, const struct input *in);

/* Writes the members of the schema of an object that may have these members ("a, b"). */
void openapi_names(struct json_out *o, const char *names);

/* Writes the members of the schema of a dialect's requests: those that it reads. Further members
 * are permitted. */
void openapi_dialect(struct json_out *o, const struct dialect *d);

/* --- openapi_errors.c --- */

/* Writes "responses" of a route: its success, and its possible errors by status. */
void openapi_responses(struct json_out *o, const struct told_route *t);

/* Write the components "schemas" and "responses". */
void openapi_error_schema(struct json_out *o);
void openapi_error_codes(struct json_out *o);

#endif
