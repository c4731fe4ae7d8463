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

/* The folder that "/sesions" of "/sesions/w0-1/complete" was meant to be, or NULL. */
static const char *find_folder(struct str path)
{
    static const char *const folders[] = {"/sessions", "/groups", "/queues", "/attempts", "/admin"};
    struct str head = str_sub(path, 0, str_find(path, STR("/"), 1));
    struct nearest near = nearest_to(head);

    for (size_t i = 0; head.len < path.len && i < ARRAY_LEN(folders); i++)
        nearest_offer(&near, folders[i]);
    return near.cost > 0 ? near.name : NULL;
}

bool near_path_is_ours(struct str path)
{
    return find_folder(path) != NULL;
}

/* The whole path with its folder as it should be; a long or odd rest is left out. */
static bool tell_folder(struct str path, struct err *e)
{
    const char *folder = find_folder(path);
    struct str rest = str_sub(path, str_find(path, STR("/"), 1), SIZE_MAX);
    char shown[200] = "/...";
    size_t n = 0;

    if (!folder)
        return false;
    if (str_starts(rest, STR("/v1/"))) { /* no name in between: "/session/v1/..." */
        tell(e, folder, "");
        return true;
    }
    while (n < rest.len && n < sizeof(shown) - 1 && rest.p[n] > ' ' && rest.p[n] < 127)
        n++;
    if (n == rest.len)
        (void)snprintf(shown, sizeof(shown), "%.*s", (int)rest.len, rest.p);
    tell(e, folder, shown);
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
    if (!in_session && !control.name && tell_folder(path, e))
        return;
    for (size_t i = 0; dialect_path_at(i); i++)
        nearest_offer(&call, dialect_path_at(i));
    if (control.name && (!call.name || control.cost <= call.cost))
        tell(e, in_session ? "/sessions/{id}" : "", control.name);
    else if (call.name)
        tell(e, "/v1", call.name);
}
