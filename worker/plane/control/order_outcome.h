/*
 * struct order_outcome: which of the others obeyed an order that one worker sent to them.
 */
#ifndef RG_CONTROL_ORDER_OUTCOME_H
#define RG_CONTROL_ORDER_OUTCOME_H

#include <stddef.h>

#include "common/base/buf.h"

struct err;
struct siblings_missing;

struct order_outcome {
    size_t workers, nodes, n_obeyed; /* that failed; nodes that obeyed, without this one */
    struct buf names;                /* of the nodes that failed */
    struct buf obeyed;               /* nodes that obeyed, as JSON members */
};

/* Records the end of a round. */
void order_outcome_record(struct order_outcome *o, const struct siblings_missing *missing);

/* Returns -1 with ERR_FLEET_PARTIAL or ERR_WORKER_UNAVAILABLE if some receiver did not obey. */
int order_outcome_check(const struct order_outcome *o, struct err *e);

void order_outcome_done(struct order_outcome *o);

#endif
