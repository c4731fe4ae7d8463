/* The hint in errors of unknown paths (near_path.h). Tried in this order:
 *
 *   /Sessions/w0-1/x, //sessions/w0-1    a folder of ours, spelt differently
 *   /v1/sessions/w0-1/v1/messages        a folder of ours after a doubled or foreign prefix
 *   /sessions/w0-1/finalise              the nearest path of the control plane or of a dialect
 *   /v1/messages/v1/messages             the nearest path to the end of the given one */

#include "worker/plane/api/near_path.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/nearest.h"
#include "common/proc/ids.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/api/routes.h"

static void add_hint(struct err *e, const char *head, const char *path)
{
    err_add(e, "; did you mean \"%s%s\"?", head, path);
}

/* Paths of routers and the dispatcher. "{" is a placeholder for a name. */
static const char *const others[] = {
    "/health",
    "/ready",
    "/metrics",
#define X(method, path, scopes, handler, query, body, summary) path,
#include "common/proc/paths.def"
#undef X
};

enum { SHOWN_MAX = 200 };

/* Returns the folder of the control plane that the first name of a longer path was meant to be, or
 * NULL. *ret_cost: number of letters that differ; 0 also if only their case does. */
static const char *find_folder(struct str path, unsigned *ret_cost)
{
    static const char *const folders[] = {"/sessions", "/groups", "/queues", "/attempts", "/admin"};
    struct str head = str_sub(path, 0, str_find(path, STR("/"), 1));
    struct nearest near = nearest_to(head);

    for (size_t i = 0; head.len + 1 < path.len && i < ARRAY_LEN(folders); i++)
        nearest_offer(&near, folders[i]);
    *ret_cost = near.cost;
    return near.name;
}

static bool is_spelt(struct str path, const char *folder)
{
    return str_eq_c(str_sub(path, 0, str_find(path, STR("/"), 1)), folder);
}

bool near_path_is_ours(struct str path)
{
    struct str id;
    uint32_t index;
    unsigned cost;
    const char *folder = find_folder(path, &cost);

    if (folder && !is_spelt(path, folder))
        return true;
    for (size_t at = str_find(path, STR("/sessions/"), 1); at != SIZE_MAX;
         at = str_find(path, STR("/sessions/"), at + 1)) {
        id = str_sub(path, at + strlen("/sessions/"), SIZE_MAX);
        id = str_sub(id, 0, str_find(id, STR("/"), 0));
        if (ids_parse(id, &index) == 0)
            return true;
    }
    return false;
}

/* Writes the path without doubled slashes, doubled "/v1" and a final slash. Returns false if it is
 * too long or unusual to be shown. */
static bool clean_path(struct str path, char ret_text[SHOWN_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < path.len; i++) {
        if (path.p[i] <= ' ' || path.p[i] >= 127 || n + 1 == SHOWN_MAX)
            return false;
        if (path.p[i] != '/' || n == 0 || ret_text[n - 1] != '/')
            ret_text[n++] = path.p[i];
        if (n >= 7 && memcmp(ret_text + n - 7, "/v1/v1/", 7) == 0)
            n -= 3;
    }
    if (n > 1 && ret_text[n - 1] == '/')
        n--;
    ret_text[n] = '\0';
    return true;
}

/* Offers the path from its folder on, with the right spelling of the folder. */
static void hint_folder(struct str path, const char *folder, struct err *e)
{
    struct str rest = str_sub(path, str_find(path, STR("/"), 1), SIZE_MAX);
    char shown[SHOWN_MAX];

    (void)snprintf(shown, sizeof(shown), "%.*s", (int)rest.len, rest.p);
    /* "/session/v1/...": there is no name in between */
    add_hint(e, folder, str_starts(rest, STR("/v1/")) ? "" : shown);
}

/* Offers the path from the last folder of ours in it, unless the whole path begins with that folder
 * correctly. `most`: how many letters of the first one may differ. */
static bool hint_by_folder(struct str path, unsigned most, struct err *e)
{
    char text[SHOWN_MAX];
    struct str clean;
    const char *folder = NULL;
    size_t from = 0;

    if (!clean_path(path, text)) {
        unsigned cost;

        folder = find_folder(path, &cost);
        if (!folder || is_spelt(path, folder) || cost > most)
            return false;
        add_hint(e, folder, "/...");
        return true;
    }
    clean = str_cstr(text);
    for (size_t at = 0; at != SIZE_MAX; at = str_find(clean, STR("/"), at + 1)) {
        unsigned cost;
        const char *found = find_folder(str_sub(clean, at, SIZE_MAX), &cost);

        if (found && cost <= (at == 0 ? most : 0)) {
            folder = found;
            from = at;
        }
    }
    if (!folder || (from == 0 && str_eq(clean, path) && is_spelt(path, folder)))
        return false;
    hint_folder(str_sub(clean, from, SIZE_MAX), folder, e);
    return true;
}

/* Offers the known paths for a path of this kind. */
static void offer_known(struct nearest *control, struct nearest *call, bool in_session)
{
    const struct routes *routes = in_session ? &routes_session : &routes_global;

    for (size_t i = 0; i < routes->n; i++) {
        if (strlen(routes->at[i].path) > 1)
            nearest_offer(control, routes->at[i].path);
    }
    for (size_t i = 0; !in_session && i < ARRAY_LEN(others); i++) {
        if (!strchr(others[i], '{'))
            nearest_offer(control, others[i]);
    }
    for (size_t i = 0; dialect_path_at(i); i++)
        nearest_offer(call, dialect_path_at(i));
}

void near_path_hint(struct str path, struct str rest, struct err *e)
{
    bool in_session = rest.len < path.len;
    struct nearest control = nearest_to(rest), call = nearest_to(dialect_path(rest));

    offer_known(&control, &call, in_session);
    if (hint_by_folder(path, control.name && control.cost > 0 ? control.cost - 1 : UINT_MAX, e))
        return;
    for (size_t at = str_find(rest, STR("/"), 1); !control.name && !call.name && at != SIZE_MAX;
         at = str_find(rest, STR("/"), at + 1)) {
        struct str end = str_sub(rest, at, SIZE_MAX);

        control = nearest_to(end);
        call = nearest_to(dialect_path(end));
        offer_known(&control, &call, in_session);
    }
    if (control.name && (!call.name || control.cost <= call.cost))
        add_hint(e, in_session ? "/sessions/{id}" : "", control.name);
    else if (call.name)
        add_hint(e, "/v1", call.name);
}
