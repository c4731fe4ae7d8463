/* The routes of the control plane as tables (routes.h), made from routes.def: those at the root,
 * and those below /sessions/{id}. */

#include "worker/plane/api/routes.h"

#include "common/base/attrs.h"
#include "worker/plane/api/openapi.h"
#include "worker/plane/api/ui.h"
#include "worker/plane/control/handlers.h"

static const struct api_route global[] = {
#define GLOBAL(method, path, scopes, handler, inputs, summary) \
    {method, path, scopes, handler, INPUT_##inputs, summary},
#include "worker/plane/api/routes.def"
};

static const struct api_route session[] = {
#define SESSION(method, path, scopes, handler, inputs, summary) \
    {method, path, scopes, handler, INPUT_##inputs, summary},
#include "worker/plane/api/routes.def"
};

const struct routes routes_global = {global, ARRAY_LEN(global)};
const struct routes routes_session = {session, ARRAY_LEN(session)};
