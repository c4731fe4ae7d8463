/*
 * Parts of /openapi.json (openapi.h): the schemas of what requests take, and the errors of a route.
 * All write JSON members or values into the page.
 */
#ifndef RG_API_OPENAPI_PARTS_H
#define RG_API_OPENAPI_PARTS_H

#include <stdbool.h>

struct api_route;
struct dialect;
struct input;
struct json_out;

enum { PATH_MAX_LEN = 96 };

/* A route of whatever table, with its whole path. */
struct told_route {
    char path[PATH_MAX_LEN];
    const char *method, *summary, *plane;
    unsigned scopes;
    const struct api_route *inputs; /* its fields' rows in inputs.def; or NULL */
    const struct dialect *dialect;  /* whose requests it takes; or NULL */
    const char *query, *body;       /* names of a dispatcher's route; or NULL */
    bool takes_body;
};

/* Writes "key": "text". */
void openapi_member(struct json_out *o, const char *key, const char *text);

/* --- openapi_schemas.c --- */

/* The schema of one row of inputs.def. */
void openapi_input(struct json_out *o, const struct input *in);

/* The members of the schema of an object that may have these members ("a, b"). */
void openapi_names(struct json_out *o, const char *names);

/* The members of a schema of a dialect's requests: what it reads, of what may be more. */
void openapi_dialect(struct json_out *o, const struct dialect *d);

/* --- openapi_errors.c --- */

/* "responses" of a route: its good end, and what can go wrong, by status. */
void openapi_responses(struct json_out *o, const struct told_route *t);

/* The components "schemas" and "responses". */
void openapi_error_schema(struct json_out *o);
void openapi_error_codes(struct json_out *o);

#endif
