/*
 * struct order_outcome: which of the others obeyed an order that one worker sent to them.
 */
#ifndef RG_CONTROL_ORDER_OUTCOME_H
#define RG_CONTROL_ORDER_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"

struct err;
struct heritage;
struct json_out;
struct siblings_missing;

struct order_outcome {
    size_t workers, nodes; /* number of those that did not obey */
    size_t n_obeyed;       /* number of nodes that obeyed, without this one */
    struct buf names;      /* of the nodes that did not obey */
    struct buf obeyed;     /* nodes that obeyed, as JSON members */
};

/* Records the end of a round. */
void order_outcome_record(struct order_outcome *o, const struct siblings_missing *missing);

/* Returns -1 with ERR_FLEET_PARTIAL or ERR_WORKER_UNAVAILABLE if some receiver did not obey. */
int order_outcome_check(const struct order_outcome *o, struct err *e);

/* Writes the member with the nodes that have obeyed (of_fleet), or those that were not asked. */
void order_outcome_write(const struct order_outcome *o, const struct heritage *h, bool of_fleet,
                         struct json_out *out);

void order_outcome_done(struct order_outcome *o);

#endif
