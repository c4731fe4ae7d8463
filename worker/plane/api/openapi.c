/* GET /openapi.json and GET /: the routes, collected from the tables that serve them: routes.def
 * (control plane), the dialects' paths (data plane), paths.def of the dispatcher, and a few that
 * routers serve. So no served route can be missing. Schemas of requests are in openapi_schemas.c,
 * errors in openapi_errors.c. */

#include "worker/plane/api/openapi.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/api/inputs.h"
#include "worker/plane/api/openapi_parts.h"
#include "worker/plane/api/routes.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

enum { PATHS_MAX = 96 };

struct told_routes {
    struct told_route at[PATHS_MAX];
    size_t n;
};

static const struct dispatcher_route {
    struct api_route route;
    const char *query, *body;
} dispatcher_routes[] = {

#define X(method, path, scopes, handler, query, body, summary) \
    {{method, path, scopes, NULL, INPUT_NOTHING, summary}, query, body},
#include "common/proc/paths.def"
#undef X
};

/* Routes that routers serve, and those of the data plane that no dialect has. */
static const struct api_route more_routes[] = {
    {"GET", "/health", SCOPE_P, NULL, INPUT_NOTHING, "Returns 200 while the gateway runs"},
    {"GET", "/ready", SCOPE_P, NULL, INPUT_NOTHING,
     "Returns 200 if every worker serves and an engine answers, else 503"},
    {"GET", "/metrics", SCOPE_P, NULL, INPUT_NOTHING,
     "Returns metrics as Prometheus text. --metrics-auth: needs an admin key"},
    {"GET", "/sessions/{id}/v1/models", SCOPE_A | SCOPE_G, NULL, INPUT_NOTHING,
     "Lists the served model"},
    {"GET", "/sessions/{id}/v1/models/{name}", SCOPE_A | SCOPE_G, NULL, INPUT_NOTHING,
     "Returns the served model"},
    {"GET", "/sessions/{id}/v1/responses/{response}", SCOPE_A | SCOPE_G, NULL, INPUT_NOTHING,
     "Returns a recorded response"},
};

/* --- the list of all routes --- */

/* Appends a route. PATHS_MAX is checked, because the tables are fixed when the program is built. */
static struct told_route *add_route(struct told_routes *all, const struct api_route *r,
                                    const char *plane)
{
    struct told_route *t = &all->at[all->n];

    CHECK(all->n < PATHS_MAX);
    *t = (struct told_route){.method = r->method,
                             .summary = r->summary,
                             .plane = plane,
                             .scopes = r->scopes,
                             .takes_body = r->method[0] == 'P'};
    all->n++;
    return t;
}

/* Adds the routes of one table, below `head`. */
static void add_table(struct told_routes *all, const struct routes *table, const char *head)
{
    for (size_t i = 0; i < table->n; i++) {
        struct told_route *t = add_route(all, &table->at[i], "control");

        (void)snprintf(t->path, sizeof(t->path), "%s%s", head, table->at[i].path);
        t->inputs = &table->at[i];
    }
}

/* Adds the dispatcher's table, with a name for each "{}". */
static void add_dispatcher(struct told_routes *all)
{
    for (size_t i = 0; i < ARRAY_LEN(dispatcher_routes); i++) {
        const struct dispatcher_route *r = &dispatcher_routes[i];
        const char *path = r->route.path;
        const char *hole = strstr(path, "{}");
        struct told_route *t = add_route(all, &r->route, "rollouts");

        (void)snprintf(t->path, sizeof(t->path), "%.*s%s%s",
                       hole ? (int)(hole - path) : (int)strlen(path), path, hole ? "{name}" : "",
                       hole ? hole + 2 : "");
        t->query = r->query;
        t->body = r->body;
        t->takes_body = r->body[0] != '\0';
    }
}

/* Adds one route for each path of a dialect, and the others of the data plane. */
static void add_data_plane(struct told_routes *all)
{
    static const struct api_route like = {"POST", "", SCOPE_A | SCOPE_G, NULL, INPUT_NOTHING, ""};

    for (size_t i = 0; dialect_path_at(i); i++) {
        struct told_route *t = add_route(all, &like, "data");

        (void)snprintf(t->path, sizeof(t->path), "/sessions/{id}/v1%s", dialect_path_at(i));
        t->dialect = dialect_for_path(str_cstr(dialect_path_at(i)));
        t->summary = dialect_summary_at(i);
    }
    for (size_t i = 0; i < ARRAY_LEN(more_routes); i++) {
        bool below = str_starts(str_cstr(more_routes[i].path), STR("/sessions"));
        struct told_route *t = add_route(all, &more_routes[i], below ? "data" : "operation");

        (void)snprintf(t->path, sizeof(t->path), "%s", more_routes[i].path);
    }
}

/* Collects the routes; the caller frees the result. */
static struct told_routes *collect_routes(void)
{
    struct told_routes *all = mem_zalloc(sizeof(*all));

    add_table(all, &routes_global, "");
    add_table(all, &routes_session, "/sessions/{id}");
    add_data_plane(all);
    add_dispatcher(all);
    return all;
}

/* --- scopes --- */

static const struct {
    unsigned bit;
    const char *name, *about;
} scope_names[] = {
    {SCOPE_A, "admin", "A key of --admin-key-file"},
    {SCOPE_R, "runner", "The session's runner_key"},
    {SCOPE_G, "agent", "The session's api_key; also as x-api-key or api-key"},
    {SCOPE_E, "executor", "An executor's key"},
};

/* Writes the kinds of keys. */
static void write_schemes(struct json_out *o)
{
    json_out_member_obj(o, "securitySchemes");
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++) {
        json_out_member_obj(o, scope_names[i].name);
        json_out_member_cstr(o, "type", "http");
        json_out_member_cstr(o, "scheme", "bearer");
        json_out_member_cstr(o, "description", scope_names[i].about);
        json_out_end_obj(o);
    }
    json_out_end_obj(o);
}

/* Writes the accepted kinds of keys, any of which is enough; none for public routes. */
static void write_security(struct json_out *o, unsigned scopes)
{
    json_out_member_arr(o, "security");
    for (size_t i = 0; i < ARRAY_LEN(scope_names); i++) {
        if (!(scopes & scope_names[i].bit))
            continue;
        json_out_obj(o);
        json_out_member_arr(o, scope_names[i].name);
        json_out_end_arr(o);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

/* --- inputs of a route --- */

/* Returns the i-th row if it is an input of the route in that place, else NULL. */
static const struct input *input_of(const struct told_route *t, size_t i, enum input_place place)
{
    const struct input *in = &inputs_all.at[i];

    return t->inputs && (in->sets & t->inputs->inputs) && (in->place & place) &&
                   in->kind != INPUT_KIND_HIDDEN
               ? in
               : NULL;
}

/* --- a route --- */

/* One parameter of path or query. */
static void write_parameter(struct json_out *o, struct str name, bool in_path,
                            const struct input *in)
{
    json_out_obj(o);
    json_out_member_str(o, "name", name);
    json_out_member_cstr(o, "in", in_path ? "path" : "query");
    json_out_member_bool(o, "required", in_path);
    if (in)
        json_out_member_cstr(o, "description", in->summary);
    json_out_key(o, "schema");
    if (in)
        openapi_input(o, in);
    else
        json_out_raw(o, STR("{\"type\":\"string\"}"));
    json_out_end_obj(o);
}

/* Writes the names in braces in the path, then the query's parameters. */
static void write_parameters(struct json_out *o, const struct told_route *t)
{
    struct str left = str_cstr(t->path);
    size_t at;

    json_out_member_arr(o, "parameters");
    while ((at = str_find(left, STR("{"), 0)) != SIZE_MAX) {
        size_t end = str_find(left, STR("}"), at);

        write_parameter(o, str_sub(left, at + 1, end - at - 1), true, NULL);
        left = str_sub(left, end + 1, SIZE_MAX);
    }
    for (size_t i = 0; i < inputs_all.n; i++) {
        const struct input *in = input_of(t, i, PLACE_QUERY);

        if (in)
            write_parameter(o, str_cstr(in->name), false, in);
    }
    left = str_cstr(t->query ? t->query : "");
    while (left.len > 0) {
        struct str one = str_sub(left, 0, str_find(left, STR(", "), 0));

        write_parameter(o, one, false, NULL);
        left = str_sub(left, one.len + 2, SIZE_MAX);
    }
    json_out_end_arr(o);
}

/* Writes the fields of the control plane; null means "not given". */
static void write_body_fields(struct json_out *o, const struct told_route *t)
{
    json_out_member_obj(o, "properties");
    for (size_t i = 0; i < inputs_all.n; i++) {
        const struct input *in = input_of(t, i, PLACE_BODY);

        if (!in)
            continue;
        json_out_member_obj(o, in->name);
        json_out_member_cstr(o, "description", in->summary);
        json_out_key(o, "anyOf"); /* null: not given */
        json_out_arr(o);
        openapi_input(o, in);
        json_out_raw(o, STR("{\"type\":\"null\"}"));
        json_out_end_arr(o);
        json_out_end_obj(o);
    }
    json_out_end_obj(o);
    json_out_member_bool(o, "additionalProperties", false);
}

/* The request's body, from whichever table describes it. */
static void write_body(struct json_out *o, const struct told_route *t)
{
    json_out_member_obj(o, "requestBody");
    json_out_member_obj(o, "content");
    json_out_member_obj(o, "application/json");
    json_out_member_obj(o, "schema");
    json_out_member_cstr(o, "type", "object");
    if (t->inputs)
        write_body_fields(o, t);
    else if (t->dialect)
        openapi_dialect(o, t->dialect);
    else if (t->body)
        openapi_names(o, t->body);
    json_out_end_obj(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Writes "post_sessions_id_complete": letters and digits of method and path. */
static void write_operation_id(struct json_out *o, const struct told_route *t)
{
    char id[PATH_MAX_LEN + 16];
    size_t n = 0;

    for (const char *p = t->method; *p; p++)
        id[n++] = (char)tolower((unsigned char)*p);
    for (const char *p = t->path; *p && n + 2 < sizeof(id); p++) {
        if (isalnum((unsigned char)*p))
            id[n++] = *p;
        else if (n > 0 && id[n - 1] != '_')
            id[n++] = '_';
    }
    json_out_member_str(o, "operationId", str_of(id, n));
}

/* One method of one path. */
static void write_operation(struct json_out *o, const struct told_route *t)
{
    char method[8];
    size_t n = 0;

    for (; t->method[n] && n + 1 < sizeof(method); n++)
        method[n] = (char)tolower((unsigned char)t->method[n]);
    method[n] = '\0';
    json_out_member_obj(o, method);
    write_operation_id(o, t);
    json_out_member_cstr(o, "summary", t->summary);
    json_out_member_arr(o, "tags");
    json_out_cstr(o, t->plane);
    json_out_end_arr(o);
    write_security(o, t->scopes);
    write_parameters(o, t);
    if (t->takes_body)
        write_body(o, t);
    openapi_responses(o, t);
    json_out_end_obj(o);
}

/* Reports whether the route is the first of its path: OpenAPI groups methods below their path. */
static bool is_first_of_path(const struct told_routes *all, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (strcmp(all->at[j].path, all->at[i].path) == 0)
            return false;
    }
    return true;
}

/* Writes all paths. */
static void write_paths(struct json_out *o, const struct told_routes *all)
{
    json_out_member_obj(o, "paths");
    for (size_t i = 0; i < all->n; i++) {
        if (!is_first_of_path(all, i))
            continue;
        json_out_member_obj(o, all->at[i].path);
        for (size_t j = i; j < all->n; j++) {
            if (strcmp(all->at[j].path, all->at[i].path) == 0)
                write_operation(o, &all->at[j]);
        }
        json_out_end_obj(o);
    }
    json_out_end_obj(o);
}

/* --- the two pages --- */

static void write_document(struct buf *to)
{
    struct told_routes *all = collect_routes();
    struct json_out o = json_out_to(to);

    json_out_obj(&o);
    json_out_member_cstr(&o, "openapi", "3.1.0");
    json_out_member_obj(&o, "info");
    json_out_member_cstr(&o, "title", "rollgate");
    json_out_member_cstr(&o, "version", RG_VERSION);
    json_out_end_obj(&o);
    write_paths(&o, all);
    json_out_member_obj(&o, "components");
    write_schemes(&o);
    openapi_error_schema(&o);
    openapi_error_codes(&o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    free(all);
}

/* Answers with the document. It is constant, so it is made only once: any caller may ask, and
 * making it takes half a millisecond. */
void openapi_get(struct service_request *r)
{
    static struct buf document;

    if (document.len == 0)
        write_document(&document);
    respond_json(r, &document);
}

/* Answers GET / with the short list for people. */
void openapi_index(struct service_request *r)
{
    struct told_routes *all = collect_routes();
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    json_out_obj(&o);
    json_out_member_cstr(&o, "name", "rollgate");
    json_out_member_cstr(&o, "version", RG_VERSION);
    json_out_member_obj(&o, "links");
    if (r->service->config->ui)
        json_out_member_cstr(&o, "viewer", "/ui");
    json_out_member_cstr(&o, "api", "/openapi.json");
    json_out_member_cstr(&o, "health", "/health");
    json_out_member_cstr(&o, "ready", "/ready");
    json_out_member_cstr(&o, "metrics", "/metrics");
    json_out_end_obj(&o);
    json_out_member_cstr(&o, "settings", "rollgate config --docs");
    json_out_member_arr(&o, "routes");
    for (size_t i = 0; i < all->n; i++) {
        const struct told_route *t = &all->at[i];

        json_out_obj(&o);
        json_out_member_cstr(&o, "method", t->method);
        json_out_member_cstr(&o, "path", t->path);
        json_out_member_cstr(&o, "summary", t->summary);
        json_out_member_arr(&o, "scopes");
        for (size_t j = 0; j < ARRAY_LEN(scope_names); j++) {
            if (t->scopes & scope_names[j].bit)
                json_out_cstr(&o, scope_names[j].name);
        }
        json_out_end_arr(&o);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    respond_json(r, &body);
    buf_done(&body);
    free(all);
}
