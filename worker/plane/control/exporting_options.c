/* Reads the options of an export from a request (exporting_options.h). */
#include "worker/plane/control/exporting_options.h"

#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/export/build/accept.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"

bool exporting_strange_ids(const struct service *a)
{
    return !a->calls.model_known && engine_pool_all_text(a->calls.engines);
}

/* Reads the options in the query, which have the export's own names. */
static int query_options(struct str query, struct arena *a, struct export_options *ret,
                         struct err *e)
{
    struct str left = query, name, value;

    while (query_next(a, &left, &name, &value)) {
        if (export_option(ret, name, value, e))
            return -1;
    }
    return 0;
}

/* Sets the defaults of miles' own session server. A client of its version 1 sends no options and
 * accepts exactly one sample: a setting of the gateway selects that. */
static void samples_defaults(const struct service *a, struct export_options *o)
{
    static const enum export_select selects[] = {
        [SAMPLES_LEAVES] = SELECT_LEAVES,
        [SAMPLES_LAST] = SELECT_LAST,
        [SAMPLES_LONGEST] = SELECT_LONGEST,
    };

    o->drop_retries = o->train_once = o->strict = true;
    o->select = selects[a->config->samples_select];
}

int exporting_options(const struct service_request *r, enum export_format otherwise,
                      struct arena *a, struct export_options *ret, const struct json **ret_score,
                      struct err *e)
{
    const struct json *body = control_take_body(r, a);

    export_options_init(ret);
    ret->no_drift = exporting_strange_ids(r->service);
    if (otherwise == EXPORT_MILES)
        samples_defaults(r->service, ret);
    ret->format = otherwise == EXPORT_MILES
                      ? otherwise
                      : accept_format(exchange_header(r->x, "accept"), otherwise);
    if (query_options(exchange_query(r->x), a, ret, e) || export_options_json(ret, body, e) ||
        export_options_check(ret, e))
        return -1;
    *ret_score = json_get(body, "score");
    return 0;
}

void exporting_view_options(const struct service_request *r, struct arena *a,
                            struct export_options *o)
{
    o->format = EXPORT_VIEW; /* whatever Accept says */
    o->select = SELECT_LAST;
    o->branch = query_get(a, exchange_query(r->x), "branch");
    o->reported = query_get(a, exchange_query(r->x), "reported");
    if (!query_get(a, exchange_query(r->x), "drift").p)
        o->no_drift = true; /* the drift takes long to compute, so a viewer must request it */
}
