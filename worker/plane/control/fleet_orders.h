/*
 * struct fleet_orders: the orders that hold on all nodes of a fleet (orders_entry.h), as this
 * worker obeys them. The store has them in one entry, whose edition grows with each order.
 *
 *   change   a client's order: the entry is read and written with a new edition, then this worker
 *            obeys. The caller sends the edition to all others
 *   obey     an order that another worker has sent: this worker reads the entry
 *   missed   the keeper has seen a newer edition, or this worker starts: the entry is read. Until
 *            this worker obeys, model calls wait (service_check_owner)
 *
 * Only what was ordered after the edition that this worker obeys is applied. So an order to one
 * node ("here=1") holds until the next one of its kind to the fleet, or the node's restart. While
 * the store does not answer for a lease, tokens get no version from the trainer, because the fleet
 * may have a newer one. Nothing of this exists without --fleet.
 */
#ifndef RG_CONTROL_FLEET_ORDERS_H
#define RG_CONTROL_FLEET_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/plane/control/orders_entry.h"

struct err;
struct exchange;
struct service;
struct store;

/* Begins to obey, if this gateway is in a fleet. The store must outlive the callbacks. */
void fleet_orders_open(struct service *a, struct store *store);

/* Frees the orders, after the store was freed. Accepts a service without orders. */
void fleet_orders_close(struct service *a);

/* Reports whether this worker has read the orders, or need not. */
bool fleet_orders_are_read(const struct service *a);

/* An order of a client. Texts are copied. */
struct fleet_change {
    enum fleet_order kind;
    struct str adapter; /* FLEET_ADAPTERS: name of the one that is changed */
    struct str value;   /* versions: text; others: JSON */
    uint64_t base;      /* edition of the kind that the order changes; 0: any */
};

/* The end of a call: the edition that this worker obeys, or e. */
typedef void (*fleet_orders_fn)(void *ctx, uint64_t edition, const struct err *e);

/* Writes the change to the store and obeys it. Calls fn once, later: with ERR_STORAGE_UNAVAILABLE
 * if the store does not answer, ERR_STATE_CONFLICT if other orders were always faster, or an error
 * of the state folder. */
void fleet_orders_change(struct service *a, const struct fleet_change *change, fleet_orders_fn fn,
                         void *ctx);

/* Obeys the orders up to that edition. Calls fn once, now or later, with errors like
 * fleet_orders_change. */
void fleet_orders_obey(struct service *a, uint64_t edition, fleet_orders_fn fn, void *ctx);

/* Cancels the calls of fn for this ctx. */
void fleet_orders_forget(struct service *a, const void *ctx);

/* Returns the edition in the query of a request that another worker sent; 0: a client sent it. */
uint64_t fleet_orders_edition(const struct exchange *x);

/* Reads the order of one kind, before a change. Calls fn once, later, with its edition and JSON,
 * which is valid until fn returns (NULL: no such order was given), or with e. */
typedef void (*fleet_value_fn)(void *ctx, const struct json *value, uint64_t edition,
                               const struct err *e);
void fleet_orders_read(struct service *a, enum fleet_order kind, fleet_value_fn fn, void *ctx);

#endif
