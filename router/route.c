#include "router/route.h"

#include "common/proc/ids.h"
#include "common/proc/keys.h"

struct str route_bearer(const struct http1_head *h)
{
    struct str v = http1_known(h, HTTP1_AUTHORIZATION);

    if (v.len < 7 || !str_eq_nocase(str_sub(v, 0, 7), STR("bearer ")))
        return (struct str){0};
    return str_trim(str_sub(v, 7, v.len));
}

/* The target up to its query. */
static struct str path_of(struct str target)
{
    const char *q = memchr(target.p, '?', target.len);

    return str_of(target.p, q ? (size_t)(q - target.p) : target.len);
}

/* Whether path is `root` or lies below it. */
static bool below(struct str path, struct str root)
{
    return str_starts(path, root) && (path.len == root.len || path.p[root.len] == '/');
}

static void find_by_path(struct str path, struct route *ret)
{
    static const struct str root = STR_LIT("/sessions/");
    struct str id = str_sub(path, root.len, path.len);
    const char *slash = id.len ? memchr(id.p, '/', id.len) : NULL;

    if (slash != NULL)
        id.len = (size_t)(slash - id.p);
    ret->named = id.len > 0;
    if (ids_parse(id, &ret->index) != 0)
        return;
    ret->kind = ROUTE_WORKER;
    ret->session = id;
}

/* Whether the text stands where a session key would; then it names a worker, or nobody's. */
static bool try_key(struct str key, struct route *ret)
{
    enum key_scope scope;
    struct str id;

    if (!str_starts(key, STR("rga-")) && !str_starts(key, STR("rgr-")))
        return false;
    ret->named = true;
    if (keys_parse(key, &scope, &id, &ret->index) == 0)
        ret->kind = ROUTE_WORKER;
    return true;
}

void route_find(const struct http1_head *h, struct route *ret)
{
    struct str path = path_of(h->target);

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
    else if (!below(path, STR("/sessions")) && !below(path, STR("/ui")) &&
             !below(path, STR("/admin")))
        (void)(try_key(route_bearer(h), ret) || try_key(http1_known(h, HTTP1_X_API_KEY), ret) ||
               try_key(http1_known(h, HTTP1_API_KEY), ret));
}
