/* A session id in the path names the worker, else a session key does, else any worker serves the
 * request. Some paths belong to the dispatcher or the router. */

#include "router/route.h"

#include "common/codec/query.h"
#include "common/net/http1.h"
#include "common/proc/ids.h"
#include "common/proc/presented.h"

/* Clients send keys in several headers. */
void route_keys(const struct http1_head *h, struct presented *ret)
{
    ret->n = 0;
    ret->more = false;
    if (!h->at[HTTP1_AUTHORIZATION] && !h->at[HTTP1_X_API_KEY] && !h->at[HTTP1_API_KEY])
        return;
    for (size_t i = 0; i < h->n; i++) {
        enum http1_name name = h->headers[i].known;

        if (name == HTTP1_AUTHORIZATION)
            presented_add(ret, PRESENTED_BEARER, h->headers[i].value);
        else if (name == HTTP1_X_API_KEY || name == HTTP1_API_KEY)
            presented_add(ret, PRESENTED_PLAIN, h->headers[i].value);
    }
}

/* Returns the target without its query. */
static struct str path_of_target(struct str target)
{
    const char *q = memchr(target.p, '?', target.len);

    return str_of(target.p, q ? (size_t)(q - target.p) : target.len);
}

/* Reports whether path is `root` or below it. */
static bool is_below(struct str path, struct str root)
{
    return str_starts(path, root) && (path.len == root.len || path.p[root.len] == '/');
}

/* Finds the route of /sessions/{id}/... */
static void find_by_path(struct str path, struct route *ret)
{
    static const struct str root = STR_LIT("/sessions/");
    struct str id = str_sub(path, root.len, path.len);
    const char *slash = id.len ? memchr(id.p, '/', id.len) : NULL;

    if (slash != NULL)
        id.len = (size_t)(slash - id.p);
    ret->named = id.len > 0;
    ret->place = id;
    if (ids_parse(id, &ret->index) != 0)
        return;
    ret->kind = ROUTE_WORKER;
    ret->session = id;
}

/* Finds the worker of a session key. Keys that prove nothing here name a worker, too: they may be a
 * different node's. */
static void find_by_key(struct route *ret)
{
    ret->named = ret->proof.meant;
    if (!ret->proof.claims)
        return;
    ret->kind = ROUTE_WORKER;
    ret->index = ret->proof.index;
}

/* Finds the route of paths outside of sessions. */
static void find_by_target(struct str path, struct route *ret)
{
    *ret = (struct route){.kind = ROUTE_ANY,
                          .messages = str_ends(path, STR("/messages")) ||
                                      str_ends(path, STR("/messages/count_tokens"))};
    if (str_starts(path, STR("/sessions/")))
        find_by_path(path, ret);
    else if (str_eq(path, STR("/health")))
        ret->kind = ROUTE_HEALTH;
    else if (str_eq(path, STR("/ready")))
        ret->kind = ROUTE_READY;
    else if (str_eq(path, STR("/metrics")))
        ret->kind = ROUTE_METRICS;
    else if (is_below(path, STR("/groups")) || is_below(path, STR("/queues")) ||
             is_below(path, STR("/attempts"))) {
        ret->kind = ROUTE_DISPATCHER;
        ret->admins = !is_below(path, STR("/attempts"));
        ret->renews = str_eq(path, STR("/attempts/renew"));
    } else if (str_eq(path, STR("/")) || str_eq(path, STR("/openapi.json")) ||
               is_below(path, STR("/ui")))
        ret->open = true;
    else
        ret->admins = is_below(path, STR("/sessions")) || is_below(path, STR("/admin")) ||
                      str_eq(path, STR("/events")) || str_eq(path, STR("/stats")) ||
                      is_below(path, STR("/fleet"));
}

/* Finds the node whose figures are wanted. */
static void find_node(struct str path, struct str target, struct route *ret)
{
    struct str left = str_sub(target, path.len + 1, SIZE_MAX), name, value;

    if (!str_eq(path, STR("/stats")) && !str_eq(path, STR("/fleet")))
        return;
    while (query_split(&left, &name, &value))
        if (str_eq(name, STR("node")))
            ret->node = value;
}

/* Reports whether the request only reads and has no body. A worker would read the whole body of any
 * other request at an open path before it refuses it. */
static bool only_reads(const struct http1_head *h)
{
    return h->body == HTTP1_NO_BODY &&
           (str_eq(h->method, STR("GET")) || str_eq(h->method, STR("HEAD")));
}

int route_find(const struct http1_head *h, const struct keys *k, struct route *ret, struct err *e)
{
    struct str path = path_of_target(h->target);
    struct presented shown;

    find_by_target(path, ret);
    find_node(path, h->target, ret);
    ret->open = ret->open && only_reads(h);
    if (route_is_local(ret))
        return 0; /* local.c checks the key of the router's own routes */
    route_keys(h, &shown);
    if (shown.n == 0)
        return 0;
    if (presented_prove(&shown, k, &ret->proof, e) != 0)
        return -1;
    if (ret->kind == ROUTE_ANY && !ret->place.p && !ret->admins && !is_below(path, STR("/ui")))
        find_by_key(ret);
    return 0;
}
