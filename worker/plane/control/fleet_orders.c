/* Reads, writes and obeys the orders of a fleet (fleet_orders.h). */
#include "worker/plane/control/fleet_orders.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/weights_file.h"
#include "worker/plane/control/orders_obey.h"
#include "worker/plane/service/service.h"

enum { LOOK_MS = 50, WRITES_MAX = 8, RETRY_MS = 1000, RETRY_MAX_MS = 30000 };

struct fleet_orders {
    struct service *service;
    struct store *store;
    struct list_head jobs;
    struct loop_timer look;
    bool reading;               /* the entry is being read, because an edition was missed */
    uint64_t faulty;            /* edition that cannot be obeyed, which was logged; 0: none */
    uint64_t wait_ms, again_ms; /* delay after the last try of that, and the next try's time */
};

/* A call to this file. */
struct order_job {
    struct list_item item;
    struct fleet_orders *orders;
    fleet_orders_fn fn; /* NULL: cancelled, or `value_fn` is set */
    fleet_value_fn value_fn;
    void *ctx;
    uint64_t edition; /* least edition to obey; of a change: that of `text` */
    bool changes;
    enum fleet_order kind;
    uint64_t base;
    struct buf adapter, value;
    struct buf text; /* the entry that is being written */
    unsigned writes;
};

bool fleet_orders_are_read(const struct service *a)
{
    return !a->orders || orders_obeyed(a) > 0;
}

static void free_job(struct order_job *j)
{
    list_remove(&j->item);
    buf_done(&j->adapter);
    buf_done(&j->value);
    buf_done(&j->text);
    free(j);
}

static void end_job(struct order_job *j, uint64_t edition, const struct err *e)
{
    fleet_orders_fn fn = j->fn;
    fleet_value_fn value_fn = j->value_fn;
    void *ctx = j->ctx;

    free_job(j);
    if (fn)
        fn(ctx, edition, e);
    else if (value_fn)
        value_fn(ctx, NULL, 0, e);
}

static void fail_job(struct order_job *j, const struct store_answer *a)
{
    struct err e;

    if (a->verdict == STORE_OVERTAKEN)
        (void)err_set(&e, ERR_STATE_CONFLICT, "other orders were faster: send it again");
    else
        (void)err_set(&e, ERR_STORAGE_UNAVAILABLE,
                      "the fleet's store does not answer (%s): send the order again",
                      a->why ? a->why : store_verdict_name(a->verdict));
    end_job(j, 0, &e);
}

static void obey_job(struct order_job *j, struct str text, uint64_t edition)
{
    bool own_set = j->changes && j->kind == FLEET_ENGINES;
    struct err e;

    if (orders_obey(j->orders->service, text, edition, own_set, &e) != 0)
        end_job(j, 0, &e);
    else
        end_job(j, edition, NULL);
}

/* Appends the new value. The fleet's first order about adapters begins with those of this node. */
static int make_value(struct order_job *j, const struct orders_entry *o, struct buf *out,
                      struct err *e)
{
    const struct json *list = o->values[FLEET_ADAPTERS];
    struct weights_told told = {0};
    struct json_out w = json_out_to(out);
    int rc = 0;

    if (j->kind == FLEET_VERSION) {
        json_out_str(&w, buf_str(&j->value));
    } else if (j->kind != FLEET_ADAPTERS) {
        buf_add_str(out, buf_str(&j->value));
    } else {
        rc = list ? orders_read_adapters(list, &told.loras, e)
                  : weights_load(j->orders->service->heritage->state_dir, &told, e);
        if (rc == 0 && lora_set(&told.loras, buf_str(&j->adapter), buf_str(&j->value)))
            rc = err_field(e, "name", "there are %d adapters already", LORAS_MAX);
        lora_write(&told.loras, &w);
        weights_told_done(&told);
    }
    return rc;
}

static void on_written(void *ctx, const struct store_answer *a);

/* Writes the entry with the change. A store that was emptied gets its entry back from the keepers
 * first, because the new one would have this order alone. Editions are at least the clock's
 * milliseconds: after a failover that has lost an order, the next one gets a different edition. */
static void write_change(struct order_job *j, struct str text, uint64_t edition)
{
    struct orders_entry o;
    struct arena arena = {0};
    struct buf value = {0};
    struct err e = {0};
    int rc = orders_entry_read(&arena, text, &o);

    if (rc != 0)
        (void)err_set(&e, ERR_STORAGE_FAILED, "the entry `orders` of the fleet's store is damaged");
    else if (edition == 0 && atomic_load(&j->orders->service->heritage->board->orders) > 0)
        rc = err_set(&e, ERR_STORAGE_UNAVAILABLE,
                     "the fleet's store has lost its orders, and gets them back: send it again");
    else if (j->base > 0 && o.editions[j->kind] != j->base)
        rc = err_set(&e, ERR_STATE_CONFLICT, "another order was faster: send this one again");
    else
        rc = make_value(j, &o, &value, &e);
    if (rc == 0) {
        j->edition = MAX_OF(edition + 1, clock_wall_ms());
        j->writes++;
        buf_clear(&j->text);
        orders_entry_write(&o, j->kind, buf_str(&value), j->edition, &j->text);
        store_put(j->orders->store, STR("orders"), buf_str(&j->text), j->edition,
                  (struct store_call){on_written, j});
    }
    buf_done(&value);
    arena_done(&arena);
    if (rc != 0)
        end_job(j, 0, &e);
}

static void on_written(void *ctx, const struct store_answer *a)
{
    struct order_job *j = ctx;

    if (a->verdict == STORE_DONE)
        obey_job(j, buf_str(&j->text), j->edition);
    else if (a->verdict == STORE_OVERTAKEN && j->writes < WRITES_MAX)
        write_change(j, a->value, a->edition);
    else
        fail_job(j, a);
}

static void pass_value(struct order_job *j, struct str text)
{
    struct orders_entry o;
    struct arena arena = {0};
    struct err e;

    if (orders_entry_read(&arena, text, &o)) {
        (void)err_set(&e, ERR_STORAGE_FAILED, "the entry `orders` of the fleet's store is damaged");
        end_job(j, 0, &e);
    } else {
        fleet_value_fn fn = j->value_fn;
        void *of = j->ctx;
        enum fleet_order kind = j->kind;

        free_job(j);
        if (fn)
            fn(of, o.values[kind], o.editions[kind], NULL);
    }
    arena_done(&arena);
}

/* The entry was read: STORE_OVERTAKEN has it, after STORE_DONE there is none. */
static void on_read(void *ctx, const struct store_answer *a)
{
    struct order_job *j = ctx;
    struct err e;

    if (a->verdict != STORE_DONE && a->verdict != STORE_OVERTAKEN) {
        fail_job(j, a);
    } else if (j->value_fn) {
        pass_value(j, a->value);
    } else if (j->changes) {
        write_change(j, a->value, a->edition);
    } else if (a->edition < j->edition) {
        (void)err_set(&e, ERR_STATE_CONFLICT,
                      "the fleet's store has lost the order: send it again");
        end_job(j, 0, &e);
    } else {
        obey_job(j, a->value, a->edition);
    }
}

static struct order_job *start_job(struct service *a, const struct order_job *what)
{
    struct order_job *j = mem_zalloc(sizeof(*j));

    *j = *what;
    j->orders = a->orders;
    list_append(&a->orders->jobs, &j->item);
    store_put(a->orders->store, STR("orders"), STR(""), 0, (struct store_call){on_read, j});
    return j;
}

void fleet_orders_change(struct service *a, const struct fleet_change *change, fleet_orders_fn fn,
                         void *ctx)
{
    struct order_job *j = start_job(
        a, &(struct order_job){
               .fn = fn, .ctx = ctx, .changes = true, .kind = change->kind, .base = change->base});

    buf_add_str(&j->adapter, change->adapter);
    buf_add_str(&j->value, change->value);
}

void fleet_orders_obey(struct service *a, uint64_t edition, fleet_orders_fn fn, void *ctx)
{
    uint64_t own = orders_obeyed(a);

    if (own > edition)
        fn(ctx, own - 1, NULL);
    else
        (void)start_job(a, &(struct order_job){.fn = fn, .ctx = ctx, .edition = edition});
}

void fleet_orders_read(struct service *a, enum fleet_order kind, fleet_value_fn fn, void *ctx)
{
    (void)start_job(a, &(struct order_job){.value_fn = fn, .ctx = ctx, .kind = kind});
}

void fleet_orders_forget(struct service *a, const void *ctx)
{
    struct order_job *j;

    if (!a->orders)
        return;
    LIST_EACH(&a->orders->jobs, j, struct order_job, item) {
        if (j->ctx == ctx) {
            j->fn = NULL;
            j->value_fn = NULL;
        }
    }
}

uint64_t fleet_orders_edition(const struct exchange *x)
{
    struct arena a = {0};
    uint64_t edition = 0;

    (void)str_to_u64(query_get(&a, exchange_query(x), "edition"), INT64_MAX, &edition);
    arena_done(&a);
    return edition;
}

/* --- missed orders --- */

static void on_missed_read(void *ctx, uint64_t edition, const struct err *e)
{
    struct fleet_orders *o = ctx;
    uint64_t known = place_table_orders(o->service->heritage->fleet);

    (void)edition;
    o->reading = false;
    if (!e)
        o->wait_ms = o->again_ms = 0;
    if (!e || e->kind == ERR_STORAGE_UNAVAILABLE || e->kind == ERR_STATE_CONFLICT)
        return;
    o->wait_ms = MIN_OF(MAX_OF(2 * o->wait_ms, (uint64_t)RETRY_MS), (uint64_t)RETRY_MAX_MS);
    if (o->faulty != known) {
        o->faulty = known;
        o->wait_ms = RETRY_MS;
        log_error(NULL, "the fleet's orders cannot be obeyed, model calls wait",
                  LOG_T("reason", e->text));
    }
    o->again_ms = loop_now_ms(o->service->calls.loop) + o->wait_ms;
}

static void on_orders_look(struct loop_timer *t)
{
    struct fleet_orders *o = CONTAINER_OF(t, struct fleet_orders, look);
    struct service *a = o->service;
    uint64_t known = place_table_orders(a->heritage->fleet);

    loop_timer_set(a->calls.loop, t, LOOK_MS, on_orders_look);
    orders_check_versions(a);
    if (o->reading || heritage_obeys(a->heritage, a->heritage->slot) ||
        (o->faulty == known && loop_now_ms(a->calls.loop) < o->again_ms))
        return;
    o->reading = true;
    (void)start_job(a, &(struct order_job){.fn = on_missed_read, .ctx = o});
}

void fleet_orders_open(struct service *a, struct store *store)
{
    if (!store)
        return;
    a->orders = mem_zalloc(sizeof(*a->orders));
    a->orders->service = a;
    a->orders->store = store;
    on_orders_look(&a->orders->look);
}

void fleet_orders_close(struct service *a)
{
    if (!a->orders)
        return;
    loop_timer_stop(a->calls.loop, &a->orders->look);
    free(a->orders);
    a->orders = NULL;
}
