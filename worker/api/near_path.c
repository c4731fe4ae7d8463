#include "worker/api/near_path.h"

#include <stdio.h>
#include <string.h>

#include "common/base/nearest.h"
#include "worker/api/routes.h"
#include "worker/dialect/dialect.h"

static void tell(struct err *e, const char *head, const char *path)
{
    size_t used = strlen(e->text);

    (void)snprintf(e->text + used, sizeof(e->text) - used, "; did you mean \"%s%s\"?", head, path);
}

void near_path_tell(struct str path, bool in_session, struct err *e)
{
    const struct routes *routes = in_session ? &routes_session : &routes_global;
    struct nearest control = nearest_to(path), call = nearest_to(dialect_path(path));

    for (size_t i = 0; i < routes->n; i++) {
        if (strlen(routes->at[i].path) > 1)
            nearest_offer(&control, routes->at[i].path);
    }
    for (size_t i = 0; dialect_path_at(i); i++)
        nearest_offer(&call, dialect_path_at(i));
    if (control.name && (!call.name || control.cost <= call.cost))
        tell(e, in_session ? "/sessions/{id}" : "", control.name);
    else if (call.name)
        tell(e, "/v1", call.name);
}
