/* The end of an order (order_outcome.h). */
#include "worker/plane/control/order_outcome.h"

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/proc/heritage.h"
#include "worker/plane/control/sibling.h"

enum { NAMES_SHOWN = 200 };

void order_outcome_record(struct order_outcome *o, const struct siblings_missing *missing)
{
    o->workers = missing->workers;
    o->nodes = missing->nodes;
    o->n_obeyed = missing->n_obeyed;
    buf_set(&o->names, missing->names);
    buf_set(&o->obeyed, missing->obeyed);
}

int order_outcome_check(const struct order_outcome *o, struct err *e)
{
    if (o->nodes > 0)
        return err_set(e, ERR_FLEET_PARTIAL,
                       "%zu nodes did not obey (%.*s), %zu did: the others obey when they reach "
                       "the store; send it again to wait for them",
                       o->nodes, (int)MIN_OF(o->names.len, (size_t)NAMES_SHOWN), o->names.p,
                       o->n_obeyed + 1);
    if (o->workers > 0)
        return err_set(e, ERR_WORKER_UNAVAILABLE, "%zu workers did not obey", o->workers);
    return 0;
}

void order_outcome_write(const struct order_outcome *o, const struct heritage *h, bool of_fleet,
                         struct json_out *out)
{
    if (!h->fleet)
        heritage_put_unreachable(h, out);
    else if (of_fleet)
        siblings_put_obeyed(h, buf_str(&o->obeyed), out);
}

void order_outcome_done(struct order_outcome *o)
{
    buf_done(&o->names);
    buf_done(&o->obeyed);
}
