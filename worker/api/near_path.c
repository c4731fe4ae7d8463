/* The hint in errors of unknown paths (near_path.h): the nearest known path, of the control
 * plane or of a dialect, whichever differs less. */

#include "worker/api/near_path.h"

#include <stdio.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/nearest.h"
#include "worker/api/routes.h"
#include "worker/dialect/dialect.h"

static void tell(struct err *e, const char *head, const char *path)
{
    size_t used = strlen(e->text);

    (void)snprintf(e->text + used, sizeof(e->text) - used, "; did you mean \"%s%s\"?", head, path);
}

/* Paths of routers and the dispatcher; with a "{" for what has a name in it. */
static const char *const others[] = {
    "/health",
    "/ready",
    "/metrics",
#define X(method, path, scopes, handler, query, body, summary) path,
#include "common/proc/paths.def"
#undef X
};

/* "/sesions/w0-1/complete": what is wrong is its head. */
static bool tell_head(struct str path, struct err *e)
{
    static const char *const heads[] = {"/sessions", "/groups", "/queues", "/attempts", "/admin"};
    struct str head = str_sub(path, 0, str_find(path, STR("/"), 1));
    struct nearest near = nearest_to(head);

    for (size_t i = 0; head.len < path.len && i < ARRAY_LEN(heads); i++)
        nearest_offer(&near, heads[i]);
    if (!near.name || near.cost == 0)
        return false;
    tell(e, near.name, "/...");
    return true;
}

/* Adds the hint to e's text, if something is near enough. */
void near_path_tell(struct str path, bool in_session, struct err *e)
{
    const struct routes *routes = in_session ? &routes_session : &routes_global;
    struct nearest control = nearest_to(path), call = nearest_to(dialect_path(path));

    for (size_t i = 0; i < routes->n; i++) {
        if (strlen(routes->at[i].path) > 1)
            nearest_offer(&control, routes->at[i].path);
    }
    for (size_t i = 0; !in_session && i < ARRAY_LEN(others); i++) {
        if (!strchr(others[i], '{'))
            nearest_offer(&control, others[i]);
    }
    if (!in_session && !control.name && tell_head(path, e))
        return;
    for (size_t i = 0; dialect_path_at(i); i++)
        nearest_offer(&call, dialect_path_at(i));
    if (control.name && (!call.name || control.cost <= call.cost))
        tell(e, in_session ? "/sessions/{id}" : "", control.name);
    else if (call.name)
        tell(e, "/v1", call.name);
}
