/*
 * struct orders_entry: the entry "orders" of a fleet's store: what holds on every node, as JSON.
 * Each member has the edition under which it was given, so that a node which missed orders finds
 * what it must obey. Pure. A node of a different build may have written the text: its other members
 * are kept.
 *
 *     {"version":  {"edition": 7, "value": "step-3"},       empty: the version is unknown
 *      "adapters": {"edition": 5, "value": [{"name": "tuned", "version": "3"}]},
 *      "paused":   {"edition": 9, "value": false},
 *      "engines":  {"edition": 4, "value": ["sglang:http://10.0.0.7:30000"]}}
 */
#ifndef RG_CONTROL_ORDERS_ENTRY_H
#define RG_CONTROL_ORDERS_ENTRY_H

#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct buf;
struct json;

enum fleet_order { FLEET_VERSION, FLEET_ADAPTERS, FLEET_PAUSED, FLEET_ENGINES, FLEET_ORDER_KINDS };

struct orders_entry {
    const struct json *all; /* NULL: there is no entry */
    /* by kind; NULL: no such order was given */
    const struct json *values[FLEET_ORDER_KINDS];
    uint64_t editions[FLEET_ORDER_KINDS];
};

/* Reads the text, which may be empty, into the arena. Returns -1 if it has a different form. */
int orders_entry_read(struct arena *a, struct str text, struct orders_entry *ret);

/* Appends the text of the entry with a new value (JSON) of one kind. */
void orders_entry_write(const struct orders_entry *o, enum fleet_order kind, struct str value,
                        uint64_t edition, struct buf *out);

#endif
