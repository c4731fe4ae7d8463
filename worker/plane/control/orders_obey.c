/* Obeys the orders of a fleet (orders_obey.h). The state folder has what holds for the whole node,
 * so the first worker that obeys an edition writes it, and the others follow the files. */
#include "worker/plane/control/orders_obey.h"

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/weights_file.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/orders_entry.h"
#include "worker/plane/service/service.h"

static _Atomic uint64_t *own_orders(const struct service *a)
{
    return &a->heritage->board->slots[a->heritage->slot].orders;
}

uint64_t orders_obeyed(const struct service *a)
{
    return atomic_load(own_orders(a));
}

static int obey_version(struct service *a, const struct json *value, bool writes, struct err *e)
{
    const struct heritage *h = a->heritage;
    struct str version = json_string(value);

    if (writes &&
        weights_replace(h->state_dir, &version, NULL, h->config->durability == DURABILITY_POWER, e))
        return -1;
    if (writes)
        run_note_version(&a->calls, version);
    return weights_follow(a, e);
}

int orders_read_adapters(const struct json *list, struct lora_book *ret)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && json_at(list, i); i++)
        rc = lora_set(ret, json_string(json_get(json_at(list, i), "name")),
                      json_string(json_get(json_at(list, i), "version")));
    return rc;
}

static int obey_adapters(struct service *a, const struct json *value, bool writes, struct err *e)
{
    const struct heritage *h = a->heritage;
    struct lora_book book = {0};
    int rc = 0;

    if (writes && orders_read_adapters(value, &book))
        rc = err_set(e, ERR_STORAGE_FAILED, "the fleet's orders have too many adapters");
    else if (writes)
        rc = weights_replace(h->state_dir, NULL, &book, h->config->durability == DURABILITY_POWER,
                             e);
    lora_done(&book);
    return rc ? -1 : weights_follow(a, e);
}

/* `writes`: the state folder does not have it yet. */
static int obey_kind(struct service *a, enum fleet_order kind, const struct json *value,
                     bool writes, struct err *e)
{
    switch (kind) {
    case FLEET_VERSION:
        return obey_version(a, value, writes, e);
    case FLEET_ADAPTERS:
        return obey_adapters(a, value, writes, e);
    case FLEET_PAUSED:
        pause_obey(a, json_is_true(value));
        return 0;
    default:
        /* the file may have the set already, while this worker has an older one */
        return (writes && engines_obey(a, value, e)) || engines_follow(a, e) ? -1 : 0;
    }
}

void orders_check_versions(struct service *a)
{
    const struct place_table *t = a->heritage->fleet;
    uint64_t own = atomic_load(own_orders(a)),
             away_ms = clock_boot_ms() - place_table_reached_ms(t);
    bool unknown = own == 0 || own < place_table_orders(t) ||
                   (int64_t)away_ms > a->heritage->config->fleet_lease_ms;
    struct err e;

    if (unknown == a->versions_unknown)
        return;
    a->versions_unknown = unknown;
    a->weights_seen = 0;
    if (unknown)
        engine_pool_follow(a->calls.engines, &(struct weights_told){0});
    else if (weights_follow(a, &e))
        log_error(NULL, "what was told of the weights cannot be obeyed", LOG_T("error", e.text));
}

void orders_note(struct service *a, uint64_t edition)
{
    struct board *b = a->heritage->board;
    uint64_t node = atomic_load(&b->orders);

    while (node < edition && !atomic_compare_exchange_weak(&b->orders, &node, edition))
        ;
    if (atomic_load(own_orders(a)) < edition + 1)
        atomic_store(own_orders(a), edition + 1);
    orders_check_versions(a);
    log_debug(NULL, "the fleet's orders are obeyed", LOG_U("edition", edition));
}

int orders_obey(struct service *a, struct str text, uint64_t edition, bool own_set, struct err *e)
{
    struct board *b = a->heritage->board;
    uint64_t own = atomic_load(own_orders(a)), node = atomic_load(&b->orders);
    uint64_t from =
        own > 0 ? own - 1 : node; /* a new worker has the files, and the board's pause */
    struct orders_entry o;
    struct arena arena = {0};
    int rc = 0;

    if (own > 0 && from >= edition)
        return 0;
    if (orders_entry_read(&arena, text, &o))
        rc = err_set(e, ERR_STORAGE_FAILED, "the entry `orders` of the fleet's store is damaged");
    for (unsigned kind = 0; rc == 0 && kind < FLEET_ORDER_KINDS; kind++) {
        if (o.values[kind] && o.editions[kind] > from && !(own_set && kind == FLEET_ENGINES))
            rc = obey_kind(a, (enum fleet_order)kind, o.values[kind], o.editions[kind] > node, e);
    }
    arena_done(&arena);
    if (rc == 0 && !own_set)
        orders_note(a, edition);
    return rc == 0 ? 0 : -1;
}
