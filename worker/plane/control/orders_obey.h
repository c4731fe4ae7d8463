/*
 * What a worker of a fleet does to obey the orders (orders_entry.h): the versions of weights,
 * pause, engines.
 */
#ifndef RG_CONTROL_ORDERS_OBEY_H
#define RG_CONTROL_ORDERS_OBEY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct err;
struct json;
struct lora_book;
struct service;

/* Returns 1 + the edition that this worker obeys; 0: it has read none. */
uint64_t orders_obeyed(const struct service *a);

/* Applies what was ordered after the edition that this worker obeys. `own_set`: the caller applies
 * the engines, and calls orders_note then. Returns -1 if something cannot be applied now; it is
 * tried again by the next call. */
int orders_obey(struct service *a, struct str text, uint64_t edition, bool own_set, struct err *e);

/* Gives tokens no version while the fleet may have one that this worker has not read. */
void orders_check_versions(struct service *a);

/* Adds a list of adapters to the book. Returns -1 with ERR_STORAGE_FAILED if there are too many. */
int orders_read_adapters(const struct json *list, struct lora_book *ret, struct err *e);

#endif
