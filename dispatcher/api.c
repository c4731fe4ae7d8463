/* Routes requests: finds the route, checks whether the key allows it, and writes answers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/nearest.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/presented.h"
#include "common/proc/proof.h"
#include "common/serve/exchange.h"
#include "dispatcher/desk.h"

enum { SCOPE_A = 1u << KEY_ADMIN, SCOPE_E = 1u << KEY_EXECUTOR };

static const struct path {
    const char *method, *path;
    unsigned scopes;
    void (*handler)(struct desk_request *r);
    const char *query; /* query parameters that the route has, "a, b" */
} paths[] = {

#define X(method, path, scopes, handler, query, body, summary) \
    {method, path, scopes, handler, query},
#include "common/proc/paths.def"
#undef X
    /* Only for workers, which pass the events on: routers send /events to a worker. */
    {"GET", "/events", SCOPE_A, desk_events_get, "local"},
};

/* --- answers --- */

void desk_json(struct exchange *x, int status, const struct buf *body)
{
    exchange_reply(x, status, "application/json", buf_str(body));
}

void desk_warn(struct exchange *x, struct str text)
{
    struct buf value = {0};

    for (size_t i = 0; i < text.len; i++)
        buf_add_c(&value, text.p[i] >= ' ' && text.p[i] <= '~' ? text.p[i] : '?');
    if (value.len > 0)
        exchange_set_header(x, "Rollgate-Warning", buf_str(&value));
    buf_done(&value);
}

void desk_empty(struct exchange *x, int status)
{
    exchange_reply(x, status, "application/json", STR(""));
}

void desk_error(struct exchange *x, const struct err *e)
{
    int status = err_status(e);
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    exchange_set_header(x, "x-should-retry", err_retry(e) ? STR("true") : STR("false"));
    if (err_retry(e) && (status == 429 || status == 503))
        exchange_set_header(x, "Retry-After", STR("1"));
    json_out_obj(&o);
    json_out_member_obj(&o, "error");
    json_out_member_cstr(&o, "message", e->text);
    json_out_member_cstr(&o, "type", err_openai_type(e));
    json_out_member_cstr(&o, "code", err_code(e));
    json_out_member_cstr(&o, "param", e->param[0] ? e->param : NULL);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    desk_json(x, status, &body);
    buf_done(&body);
}

/* --- the query --- */

struct str desk_query(struct desk_request *r, const char *name)
{
    return query_get(&r->arena, exchange_query(r->x), name);
}

int desk_query_seconds(struct desk_request *r, const char *name, double max_s, uint64_t *ret_ms,
                       struct err *e)
{
    struct str given = desk_query(r, name);
    const struct json *number = NULL;
    double s = 0;

    if (!given.p)
        return 0;
    if (json_parse(&r->arena, given, &number, e) || json_to_double(number, &s) || !isfinite(s) ||
        s < 0 || s > max_s)
        return err_field(e, name, "%s must be a number of seconds from 0 to %g, not %.*s", name,
                         max_s, (int)MIN_OF(given.len, 40), given.p);
    *ret_ms = (uint64_t)(s * 1000);
    return 0;
}

enum { PARAMETERS_MAX = 8, PARAMETERS_BYTES = 128 };

/* Splits a list "a, b" into names, stored in `text`. Returns their number. */
static size_t split_names(const char *list, char text[PARAMETERS_BYTES],
                          const char *names[PARAMETERS_MAX])
{
    size_t n = 0;

    (void)snprintf(text, PARAMETERS_BYTES, "%s", list);
    for (char *rest = NULL, *name = strtok_r(text, ", ", &rest); name && n < PARAMETERS_MAX;
         name = strtok_r(NULL, ", ", &rest))
        names[n++] = name;
    return n;
}

static int unknown_parameter(const struct path *path, struct str name, const char *const *known,
                             size_t n, struct err *e)
{
    struct nearest near = nearest_to(name);
    struct field_shown shown = {0};

    for (size_t i = 0; i < n; i++)
        nearest_offer(&near, known[i]);
    return field_unknown("query parameter", field_show_name(name, &shown), near.name,
                         str_cstr(path->query), e);
}

/* Refuses unknown parameters and parameters that are repeated. */
static int check_query(struct desk_request *r, const struct path *path, struct err *e)
{
    struct str left = exchange_query(r->x), name, value;
    const char *known[PARAMETERS_MAX];
    char text[PARAMETERS_BYTES];
    size_t n = split_names(path->query, text, known);

    while (query_next(&r->arena, &left, &name, &value)) {
        struct str others = left, other, unused;

        if (!str_is_one_of(name, known, n))
            return unknown_parameter(path, name, known, n, e);
        while (query_next(&r->arena, &others, &other, &unused)) {
            if (str_eq(other, name)) /* `other` is a known parameter, so it is short */
                return err_field(e, arena_cstr(&r->arena, name),
                                 "the query parameter \"%.*s\" stands twice", (int)name.len,
                                 name.p);
        }
    }
    return 0;
}

/* --- routing --- */

/* Reports whether the path has the route's form. *ret_name becomes the text in place of {}. */
static bool path_matches(struct str path, const char *form, struct str *ret_name)
{
    size_t at = 0;

    *ret_name = (struct str){0};
    while (*form) {
        if (form[0] == '{') {
            size_t end = str_find(path, STR("/"), at);

            *ret_name = str_sub(path, at, (end == SIZE_MAX ? path.len : end) - at);
            if (ret_name->len == 0)
                return false;
            at += ret_name->len;
            form += 2;
        } else if (at < path.len && path.p[at] == *form) {
            at++;
            form++;
        } else {
            return false;
        }
    }
    return at == path.len;
}

/* Adds to the error the path that the client probably meant. The second segment may be a name: a
 * group's, queue's or attempt's. */
static void hint_path(struct desk_request *r, struct str path, struct err *e)
{
    size_t slash = str_find(path, STR("/"), 1);
    struct str rest = slash == SIZE_MAX ? STR("") : str_sub(path, slash + 1, SIZE_MAX);
    struct str end = str_sub(rest, str_find(rest, STR("/"), 0), SIZE_MAX);
    struct nearest near = nearest_to(path);
    struct nearest named = nearest_to(arena_printf(
        &r->arena, "%.*s/{}%.*s", (int)MIN_OF(slash, path.len), path.p, (int)end.len, end.p));

    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        nearest_offer(strchr(paths[i].path, '{') ? &named : &near, paths[i].path);
    if (named.name && (!near.name || named.cost < near.cost))
        (void)err_set(e, ERR_NOT_FOUND, "no such path; did you mean \"%.*s{id}%s\"?",
                      (int)strcspn(named.name, "{"), named.name, strchr(named.name, '}') + 1);
    else if (near.name)
        (void)err_set(e, ERR_NOT_FOUND, "no such path; did you mean \"%s\"?", near.name);
}

static const struct path *find_path(struct desk_request *r, struct err *e)
{
    struct str method = exchange_method(r->x), path = exchange_path(r->x), name;

    (void)err_set(e, ERR_NOT_FOUND, "no such path");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        if (!path_matches(path, paths[i].path, &name))
            continue;
        if (str_eq_c(method, paths[i].method)) {
            r->name = name;
            return &paths[i];
        }
        (void)err_set(e, ERR_METHOD, "the path has no method %.*s", (int)MIN_OF(method.len, 16),
                      method.p);
    }
    if (e->kind == ERR_NOT_FOUND)
        hint_path(r, path, e);
    return NULL;
}

static int check_key(struct desk_request *r, unsigned scopes, struct err *e)
{
    struct presented shown = {.n = 0};
    struct proof proof;

    exchange_keys(r->x, &shown);
    if (presented_prove(&shown, r->desk->keys, &proof, e))
        return -1;
    if (!keys_required(r->desk->keys))
        return 0;
    if (proof.scope == KEY_NONE)
        return err_set(e, ERR_MISSING_KEY, "this request needs a valid key");
    if (keys_check_query(r->desk->keys, exchange_query(r->x), e))
        return -1;
    if (!(scopes & 1u << proof.scope))
        return err_set(e, ERR_WRONG_SCOPE, "the key does not allow this request");
    if (proof.scope == KEY_EXECUTOR)
        r->executor = proof.id;
    return 0;
}

/* Least limit of an executor's body, even if a setting is smaller: a renewal with the largest
 * number of attempts has about 360 KB. */
enum { ATTEMPTS_BYTES_MIN = 512 << 10 };

/* Checks the body's size. Executors' bodies are parsed on the loop, and an end's result is kept and
 * sent again with its group. So a long body would delay all others. Groups have limits of their
 * own. */
static int check_body_size(const struct desk_request *r, const struct path *path, struct err *e)
{
    size_t most = (size_t)r->desk->heritage->config->max_control_body_bytes,
           n = exchange_body(r->x).len;
    const char *who = "--max-control-body-bytes";

    if (most == 0 || n <= most || !str_starts(str_cstr(path->path), STR("/attempts")))
        return 0;
    if (path->handler != attempts_end && most < ATTEMPTS_BYTES_MIN) {
        most = ATTEMPTS_BYTES_MIN;
        who = "the path";
    }
    if (n <= most)
        return 0;
    return err_set(e, ERR_BODY_TOO_LARGE, "the body has %zu bytes, of which %s allows %zu", n, who,
                   most);
}

static int read_body(struct desk_request *r, struct err *e)
{
    struct str body = str_trim(exchange_body(r->x));

    if (exchange_body_error(r->x)) {
        *e = *exchange_body_error(r->x);
        return -1;
    }
    if (body.len == 0)
        return 0;
    if (json_parse_once(&r->arena, body, &r->body, e))
        return -1;
    if (!json_is(r->body, JSON_OBJECT))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    return 0;
}

static void name_request(struct desk_request *r)
{
    struct str given = exchange_header(r->x, "rollgate-request-id");
    char made[33];

    if (!given.p || given.len > 39) {
        ids_hex(r->desk->ids, made, 16);
        given = str_cstr(made);
    }
    exchange_set_header(r->x, "Rollgate-Request-Id", given);
}

void desk_handle(void *ctx, struct exchange *x)
{
    struct desk_request r = {.desk = ctx, .x = x};
    const struct path *path;
    struct err e = {0};

    name_request(&r);
    path = find_path(&r, &e);
    if (check_key(&r, path ? path->scopes : 1u << KEY_ADMIN, &e) || !path ||
        check_query(&r, path, &e) || check_body_size(&r, path, &e) || read_body(&r, &e) ||
        (r.desk->copy && desk_copy_check_read(r.desk, &e)))
        desk_error(x, &e);
    else
        path->handler(&r);
    arena_done(&r.arena);
}
