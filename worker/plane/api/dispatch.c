/* The entry of every request of a worker (dispatch.h), in this order: name it, verify its key, find
 * the session id in its path, find its route, check the key's scope, check its inputs (control
 * plane), wait for its session's content if that is not in memory (park), and call its handler.
 *
 * A path without a route belongs to the data plane if it is below a session or outside of the
 * control plane's folders. On an unknown path the error for a request without a key is about the
 * key, for any other one about the path. */

#include "worker/plane/api/dispatch.h"

#include <stdlib.h>

#include "common/proc/ids.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/proc/presented.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/api/check_inputs.h"
#include "worker/plane/api/near_path.h"
#include "worker/plane/api/parked_request.h"
#include "worker/plane/api/routes.h"
#include "worker/plane/api/ui.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"

/* The shown key, and its scope: KEY_ADMIN if no key is needed. */
struct shown_key {
    struct proof proof;
    enum key_scope scope;
};

/* Reports whether a request id from outside is valid in logs and headers as it is. */
static bool request_id_fine(struct str id)
{
    return id.len > 0 && id.len <= 39 && str_has_only(id, "-_.");
}

/* Names the request: the router has named those that it has seen, others get a name here. */
static void name_request(struct service_request *r)
{
    struct str given = exchange_header(r->x, "rollgate-request-id");

    if (request_id_fine(given)) {
        memcpy(r->request_id, given.p, given.len);
        r->request_id[given.len] = '\0';
    } else {
        ids_hex(r->service->calls.ids, r->request_id, 16);
    }
    exchange_set_header(r->x, "Rollgate-Request-Id", str_cstr(r->request_id));
}

/* Matches /sessions/abort and the like, which are no session's, because no id has such a form. */
static bool is_of_many(struct str path)
{
    if (!str_starts(path, STR("/sessions/")))
        return false;
    for (size_t i = 0; i < routes_global.n; i++) {
        if (str_eq_c(path, routes_global.at[i].path))
            return true;
    }
    return false;
}

/* For /sessions/{id}{rest} returns the rest and sets *id; returns any other path unchanged. */
static struct str behind_session(struct str path, struct str *id)
{
    struct str head = STR("/sessions/"), tail = str_sub(path, head.len, SIZE_MAX);
    size_t slash = str_find(tail, STR("/"), 0);

    if (!str_starts(path, head) || is_of_many(path))
        return path;
    *id = str_sub(tail, 0, slash == SIZE_MAX ? tail.len : slash);
    return str_sub(tail, id->len, SIZE_MAX);
}

/* Splits the path. A session key names the session of a path without one. */
static void place_request(struct service_request *r, const struct shown_key *k)
{
    struct str path = exchange_path(r->x);
    uint32_t index;

    r->rest = behind_session(path, &r->id);
    if (!r->id.p && !is_of_many(path))
        r->id = k->proof.id;
    r->id_valid = r->id.p && ids_parse(r->id, &index) == 0;
}

bool dispatch_packs(struct str request_line)
{
    size_t at = str_find(request_line, STR(" "), 0);
    struct str path = str_trim(str_sub(request_line, at, SIZE_MAX)), id = {0};

    path = str_sub(path, 0, str_find(path, STR(" "), 0));
    path = str_sub(path, 0, str_find(path, STR("?"), 0));
    return dialect_for_path(dialect_path(behind_session(path, &id))) != NULL;
}

struct str dispatch_owner(const struct exchange *x)
{
    struct presented shown = {0};
    struct str id = {0};

    (void)behind_session(exchange_path(x), &id);
    if (id.len > 0)
        return id;
    exchange_keys(x, &shown);
    for (size_t i = 0; i < shown.n; i++) {
        if (keys_is_form(shown.at[i]))
            return shown.at[i];
    }
    return STR("");
}

bool dispatch_finishes(void *ctx, const struct exchange *x)
{
    const struct service *a = ctx;
    struct str id = {0};

    return a->calls.finish_on_disconnect &&
           api_call_is_model(exchange_method(x), behind_session(exchange_path(x), &id));
}

/* Checks that the route accepts keys of this kind, and that the key is for this session. SCOPE_P is
 * public. */
static int check_scope(const struct service_request *r, const struct shown_key *k, unsigned scopes,
                       struct err *e)
{
    if (scopes & SCOPE_P)
        return 0;
    if (r->admin && (scopes & SCOPE_A))
        return 0;
    if (proof_covers(&k->proof, r->id, e))
        return -1;
    if (!(scopes & (1u << k->scope)))
        return err_set(e, ERR_WRONG_SCOPE, "the key does not allow this request");
    if (!service_serves_index(r->service, k->proof.index))
        return err_set(e, ERR_WRONG_SCOPE, "the key belongs to a session of another worker");
    return 0;
}

/* Reports whether the route has that path; "{...}" at its end matches one name. */
static bool has_path(const struct api_route *route, struct str path)
{
    const char *own = route->path;
    size_t at = 0;

    for (; own[at] && own[at] != '{'; at++)
        if (at == path.len || path.p[at] != own[at])
            return false;
    if (!own[at])
        return at == path.len;
    return path.len > at && str_find(path, STR("/"), at) == SIZE_MAX;
}

/* Returns the route, or NULL with the kind of the error: 404, or 405 if only the method is
 * wrong. */
static const struct api_route *find_route(const struct routes *routes, struct str method,
                                          struct str path, enum err_kind *ret_kind)
{
    *ret_kind = ERR_NOT_FOUND;
    for (size_t i = 0; i < routes->n; i++) {
        if (!has_path(&routes->at[i], path))
            continue;
        if (str_eq_c(method, routes->at[i].method))
            return &routes->at[i];
        *ret_kind = ERR_METHOD;
    }
    return NULL;
}

/* Names the methods of the path in a 405. */
static void name_methods(struct exchange *x, const struct routes *routes, struct str path)
{
    struct buf methods = {0};

    for (size_t i = 0; i < routes->n; i++) {
        if (has_path(&routes->at[i], path))
            buf_printf(&methods, "%s%s", methods.len ? ", " : "", routes->at[i].method);
    }
    exchange_set_header(x, "Allow", buf_str(&methods));
    buf_done(&methods);
}

static bool in_session(const struct service_request *r)
{
    return r->id.p && str_starts(exchange_path(r->x), STR("/sessions/"));
}

/* Reports whether the request belongs to the data plane: below a session every path without a
 * control route, at the root everything except the control plane's own folders. */
static bool is_data_plane(const struct service_request *r, enum err_kind kind)
{
    static const char *const ours[] = {"/sessions", "/admin",  "/ui",    "/events",
                                       "/stats",    "/health", "/ready", "/metrics"};

    if (kind != ERR_NOT_FOUND)
        return false;
    if (in_session(r))
        return r->rest.len > 0;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        if (str_starts(r->rest, str_cstr(ours[i])))
            return false;
    }
    return true;
}

/* Refuses a path that is neither the control plane's nor the data plane's. */
static void refuse_place(struct service_request *r, const struct shown_key *k,
                         const struct routes *routes, struct err *e)
{
    if (k->scope == KEY_NONE)
        (void)proof_covers(&k->proof, (struct str){0}, e);
    else if (e->kind == ERR_METHOD)
        name_methods(r->x, routes, r->rest);
    else
        near_path_hint(exchange_path(r->x), r->rest, e);
    respond_error(r, NULL, e);
}

/* The control plane accepts only what inputs.def lists. */
void dispatch_handle(struct service_request *r, const struct api_route *route)
{
    if (!parked_wait_session(r, true))
        route->handler(r);
    inputs_drop(r->service, r->body);
    r->body = NULL;
}

/* Refuses a session that is not completely written yet, even if its id is known. */
static int check_born(const struct service_request *r, struct err *e)
{
    bool ended;
    const struct session *s =
        r->id_valid ? session_find(r->service->calls.store, r->id, &ended) : NULL;

    if (r->id_valid && !ledger_is_unread(r->service->calls.ledger, r->id) &&
        (control_copies(r->service, r->id) || (s && session_copying(s))))
        return service_no_session(r, e);
    return 0;
}

/* Refuses in the form of the plane to which the path belongs. */
static void refuse(struct service_request *r, const struct api_route *route, const struct err *e)
{
    if (route)
        respond_error(r, NULL, e);
    else
        api_call_refuse(r, e);
}

/* Route, scope, inputs, session; see the head of this file. */
static void dispatch(struct service_request *r, const struct shown_key *k)
{
    struct err e = {0};
    const struct routes *routes = in_session(r) ? &routes_session : &routes_global;
    enum err_kind kind;
    const struct api_route *route = find_route(routes, exchange_method(r->x), r->rest, &kind);

    if (r->id_valid)
        exchange_set_header(r->x, "Rollgate-Session", r->id);
    if (!route && ui_holds(r->rest)) {
        ui_file(r);
        return;
    }
    if (!route && !is_data_plane(r, kind)) {
        (void)err_set(&e, kind,
                      kind == ERR_METHOD ? "the path has no such method" : "no such path");
        refuse_place(r, k, routes, &e);
        return;
    }
    if (check_scope(r, k, route ? route->scopes : SCOPE_A | SCOPE_G, &e)) {
        metrics_count_at(r->service->calls.page, METRIC_refusals, METRIC_REFUSAL_KEY, 0, 1);
        refuse(r, route, &e);
        return;
    }
    if (exchange_body_error(r->x)) {
        refuse(r, route, exchange_body_error(r->x));
        return;
    }
    if (!route && dispatch_finishes(r->service, r->x))
        exchange_finish(r->x, 1); /* until its model call has begun */
    if (check_born(r, &e) != 0 || service_check_owner(r, !route, &e) != 0) {
        if (!parked_hold(r, route != NULL, &e))
            refuse(r, route, &e);
        return;
    }
    if (route && r->body)
        dispatch_handle(r, route);
    else if (route)
        check_inputs(r, route);
    else if (!parked_wait_session(r, false))
        api_call_handle(r);
}

static int read_key(struct service_request *r, struct shown_key *ret, struct err *e)
{
    const struct keys *k = r->service->keys;
    struct presented shown = {.n = 0};

    exchange_keys(r->x, &shown);
    if (presented_prove(&shown, k, &ret->proof, e))
        return -1;
    if (keys_required(k) && ret->proof.scope != KEY_NONE &&
        keys_check_query(k, exchange_query(r->x), e)) {
        ret->proof = (struct proof){0};
        if (e->kind != ERR_MISSING_KEY)
            return -1;
    }
    ret->scope = keys_required(k) ? ret->proof.scope : KEY_ADMIN;
    r->admin = ret->scope == KEY_ADMIN;
    return 0;
}

void dispatch_enter(struct service *a, struct exchange *x, struct body_read *body, bool was_held)
{
    struct service_request r = {.service = a,
                                .x = x,
                                .body = body,
                                .dialect = METRIC_DIALECT_CONTROL,
                                .was_held = was_held};
    struct shown_key key = {0};
    struct err e = {0};
    int rc;

    name_request(&r);
    rc = read_key(&r, &key, &e);
    place_request(&r, &key);
    if (rc == 0)
        dispatch(&r, &key);
    else
        api_call_refuse(&r, &e);
    inputs_drop(a, r.body);
}

void dispatch_request(void *ctx, struct exchange *x)
{
    dispatch_enter(ctx, x, NULL, false);
}
