/* Obeys the orders of a fleet (orders_obey.h). The state folder has what holds for the whole node,
 * so the first worker that obeys an edition writes it, and the others follow the files. */
#include "worker/plane/control/orders_obey.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/os/file_lock.h"
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
    return writes ? weights_keep(a, (struct str){0}, json_string(value), e) : weights_follow(a, e);
}

int orders_read_adapters(const struct json *list, struct lora_book *ret, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && json_at(list, i); i++)
        rc = lora_set(ret, json_string(json_get(json_at(list, i), "name")),
                      json_string(json_get(json_at(list, i), "version")));
    return rc ? err_set(e, ERR_STORAGE_FAILED, "the fleet's orders have too many adapters") : 0;
}

static int obey_adapters(struct service *a, const struct json *value, bool writes, struct err *e)
{
    const struct heritage *h = a->heritage;
    struct lora_book book = {0};
    int rc = 0;

    if (writes)
        rc = orders_read_adapters(value, &book, e);
    if (writes && rc == 0)
        rc = weights_replace_loras(h->state_dir, &book, h->config->durability == DURABILITY_POWER,
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

/* Locks the node's orders, so that no other worker writes an older version over a newer one. */
static int lock_orders(const struct service *a, struct err *e)
{
    char *path = path_join(a->heritage->state_dir, "orders.lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    free(path);
    if (fd < 0)
        return err_sys(e, ERR_STORAGE_FAILED, "the fleet's orders cannot be locked");
    if (file_lock(fd, true, "orders.lock", e) == 0)
        return fd;
    e->kind = ERR_STORAGE_FAILED;
    (void)close(fd);
    return -1;
}

/* Applies what the files and the board have for the whole node. */
static int follow_node(struct service *a, struct err *e)
{
    const struct board *b = a->heritage->board;
    uint32_t paused = atomic_load(&b->paused);

    if (paused != atomic_load(&b->slots[a->heritage->slot].paused))
        pause_obey(a, paused != 0);
    return engines_follow(a, e) || weights_follow(a, e) ? -1 : 0;
}

/* Applies the kinds that were ordered after `from`. One that fails keeps no other back. */
static int obey_kinds(struct service *a, const struct orders_entry *o, uint64_t from, bool own_set,
                      struct err *e)
{
    static uint64_t applied[FLEET_ORDER_KINDS]; /* editions; also of orders that failed in part */

    uint64_t node = atomic_load(&a->heritage->board->orders);
    int rc = 0;

    for (unsigned kind = 0; kind < FLEET_ORDER_KINDS; kind++) {
        if (!o->values[kind] || o->editions[kind] <= MAX_OF(from, applied[kind]) ||
            (own_set && kind == FLEET_ENGINES))
            continue;
        if (obey_kind(a, (enum fleet_order)kind, o->values[kind], o->editions[kind] > node, e))
            rc = -1;
        else
            applied[kind] = o->editions[kind];
    }
    return rc;
}

int orders_obey(struct service *a, struct str text, uint64_t edition, bool own_set, struct err *e)
{
    uint64_t own = atomic_load(own_orders(a)), node = atomic_load(&a->heritage->board->orders);
    struct arena arena = {0};
    struct orders_entry o;
    int fd, rc = 0;

    if (own > edition && own > node)
        return 0;
    fd = lock_orders(a, e);
    if (fd < 0)
        return -1;
    node = atomic_load(&a->heritage->board->orders);
    if (own == 0 || node > edition) { /* a new worker; or the store has lost orders */
        rc = follow_node(a, e);
        own = node + 1;
    }
    if (orders_entry_read(&arena, text, &o))
        rc = err_set(e, ERR_STORAGE_FAILED, "the entry `orders` of the fleet's store is damaged");
    if (rc == 0)
        rc = obey_kinds(a, &o, own - 1, own_set, e);
    arena_done(&arena);
    if (rc == 0 && !own_set)
        orders_note(a, MAX_OF(edition, own - 1));
    (void)close(fd);
    return rc;
}
