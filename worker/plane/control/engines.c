/*
 * /admin/engines: reads and changes the set of engines. A change is one order. New engines are
 * opened beside the others and must answer. Then the new set is written to the state folder, and
 * this worker applies it, and then the others (each reads the file). A worker that missed the
 * change sees it in the file within a second; a new worker starts with it. A lock on the folder
 * allows only one order at a time in the whole gateway. If the client leaves or a step fails before
 * the set is written, nothing has changed. In a fleet the whole set is written to the store, and
 * all nodes obey it (fleet_orders.h).
 */
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_source.h"
#include "worker/plane/control/engine_order.h"
#include "worker/plane/control/fleet_orders.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

int engines_follow(struct service *a, struct err *e)
{
    uint64_t stamp = engine_set_stamp(a->heritage->state_dir);
    struct engine_set set;
    int rc;

    if (stamp == 0 || stamp == a->engines_seen)
        return 0;
    rc = engine_set_load(&set, a->engine_home, NULL, e);
    if (rc == 0 && set.edition > engine_pool_edition(a->calls.engines))
        rc = engine_pool_set(a->calls.engines, &set, e);
    engine_set_done(&set); /* empty after an error */
    if (rc == 0)
        a->engines_seen = stamp;
    else
        a->engines_failed = stamp;
    return rc;
}

/* --- from the request to the file --- */

/* Writes the new set, and applies it here and in the other workers. Everything that can fail was
 * tried before. */
static void commit_set(struct engine_order *o)
{
    struct service *a = o->service;
    struct err e = {0};

    if (!engine_order_is_as_before(o) && (engine_set_save(&o->next, a->engine_home, &e) ||
                                          engine_pool_set(a->calls.engines, &o->next, &e))) {
        engine_pool_untry(a->calls.engines);
        engine_order_fail(o, &e);
        return;
    }
    a->engines_seen = engine_set_stamp(a->heritage->state_dir);
    if (o->edition > 0)
        orders_note(a, o->edition);
    (void)close(o->lock_fd);
    o->lock_fd = -1;
    if (o->taken)
        engine_order_answer_taken(o); /* the other workers see the file's change */
    else
        engine_order_notify_others(o);
}

/* The fleet's orders have the new set. */
static void on_set_ordered(void *ctx, uint64_t edition, const struct err *e)
{
    struct engine_order *o = ctx;

    o->obeying = false;
    o->edition = edition;
    if (!e) {
        commit_set(o);
        return;
    }
    engine_pool_untry(o->service->calls.engines);
    engine_order_fail(o, e);
}

static bool is_of_fleet(const struct engine_order *o)
{
    return o->service->orders && !o->taken && o->reach == REACH_FLEET;
}

/* Commits the order: in a fleet it is written to the store first. */
static void commit_order(struct engine_order *o)
{
    struct fleet_change change = {.kind = FLEET_ENGINES};
    struct buf value = {0};
    struct json_out out = json_out_to(&value);

    o->trying = false;
    if (!is_of_fleet(o)) {
        commit_set(o);
        return;
    }
    json_out_arr(&out);
    for (size_t i = 0; i < o->next.n; i++)
        json_out_cstr(&out, o->next.at[i].text);
    json_out_end_arr(&out);
    change.value = buf_str(&value);
    change.base = o->base;
    o->obeying = true;
    fleet_orders_change(o->service, &change, on_set_ordered, o);
    buf_done(&value);
}

/* Removes the engines of a source that do not answer from the new set. */
static void keep_answering(struct engine_order *o, struct str silent)
{
    struct engine_set kept = {.edition = o->next.edition};

    for (size_t i = 0; i < o->next.n; i++) {
        const struct engine_entry *entry = &o->next.at[i];

        if (engine_order_find(&o->now, str_cstr(entry->text)) ||
            engine_pool_tried(o->service->calls.engines, entry->text))
            engine_set_add(&kept, str_cstr(entry->text), entry->number);
    }
    (void)engine_set_follow(&kept, &o->next, NULL); /* pools are as if all engines answered */
    engine_set_done(&o->next);
    o->next = kept;
    buf_add_str(&o->silent, silent);
    if (engine_order_is_as_before(o)) {
        engine_pool_untry(o->service->calls.engines);
        engine_order_answer_taken(o);
    } else {
        commit_order(o);
    }
}

static void on_tried(void *ctx, struct str silent)
{
    struct engine_order *o = ctx;
    struct err e = {0};

    if (o->obeying) /* without a probe the order goes on meanwhile */
        return;
    o->trying = false;
    if (o->taken) {
        keep_answering(o, silent);
        return;
    }
    if (silent.len == 0) {
        commit_order(o);
        return;
    }
    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                  "no answer to the health probe from: %.*s. Nothing has changed; probe: false "
                  "takes engines that do not answer yet",
                  (int)MIN_OF(silent.len, (size_t)400), silent.p);
    engine_pool_untry(o->service->calls.engines);
    engine_order_fail(o, &e);
}

/* Locks the set, so that no other worker changes it, and reads it. */
static int hold_set(struct engine_order *o, struct err *e)
{
    o->lock_fd = engine_set_lock(o->service->heritage->state_dir, e);
    return o->lock_fd < 0 || engine_set_load(&o->now, o->service->engine_home, NULL, e) ? -1 : 0;
}

/* Begins an order that was read: its new engines are tried. */
static void begin_order(struct engine_order *o)
{
    struct engine_pool *pool = o->service->calls.engines;
    struct err e = {0};

    if (engine_order_is_as_before(o)) {
        o->next.edition--;
        if (o->taken)
            engine_order_answer_taken(o);
        else if (is_of_fleet(o)) /* other nodes may have other engines */
            commit_order(o);
        else
            engine_order_answer(o);
        return;
    }
    if (engine_pool_try(pool, &o->next, on_tried, o, &e)) {
        engine_order_fail(o, &e);
        return;
    }
    o->trying = true;
    if (!o->probe)
        commit_order(o);
}

static bool is_same_set(const struct engine_set *s, const struct json *list)
{
    bool same = list && list->n == s->n;

    for (uint32_t i = 0; same && i < list->n; i++)
        same = engine_order_find(s, json_string(&list->items[i])) != NULL;
    return same;
}

/* A change of some engines begins with the set of the fleet, which this node must have. */
static void on_fleet_set(void *ctx, const struct json *list, uint64_t edition, const struct err *e)
{
    struct engine_order *o = ctx;
    struct err why;

    o->obeying = false;
    o->base = edition;
    if (e) {
        engine_order_fail(o, e);
    } else if (!is_same_set(&o->now, list)) {
        (void)err_set(&why, ERR_STATE_CONFLICT,
                      "%s: PUT the whole set, or change the engines of this node alone with here=1",
                      list ? "this node has other engines than the fleet"
                           : "the fleet has no set of engines yet");
        engine_order_fail(o, &why);
    } else {
        begin_order(o);
    }
}

/* Applies the order of a different worker, which is in the file. */
static void obey_order(struct service_request *r)
{
    struct buf answer = {0};
    struct err e = {0};

    if (engines_follow(r->service, &e)) {
        log_error(NULL, "the new set of engines cannot be obeyed", LOG_T("error", e.text));
        respond_error(r, NULL, &e);
        return;
    }
    buf_puts(&answer, "{\"status\":\"ok\"}");
    respond_json(r, &answer);
    buf_done(&answer);
}

/* Begins the order of a client. */
static void begin_request(struct service_request *r, enum engine_change change)
{
    struct engine_order *o = engine_order_new(r->service, r);
    struct err e = {0};

    o->change = change;
    if (hold_set(o, &e) || engine_order_read(o, r, &e)) {
        engine_order_fail(o, &e);
    } else if (is_of_fleet(o) && change != CHANGE_ALL) {
        o->obeying = true;
        fleet_orders_read(o->service, FLEET_ENGINES, on_fleet_set, o);
    } else {
        begin_order(o);
    }
}

static void begin_change(struct service_request *r, enum engine_change change)
{
    const char *source = r->service->config->engine_source;
    bool is_local = reach_of_request(r->x) == REACH_PROCESS;
    struct err e = {0};

    if (!is_local && source && *source) {
        (void)err_field(&e, "engines",
                        "the engines are those that --engine-source tells: change them there");
        respond_error(r, NULL, &e);
    } else if (r->service->orders && fleet_orders_edition(r->x) > 0) {
        admin_obey(r);
    } else if (is_local) {
        obey_order(r);
    } else {
        begin_request(r, change);
    }
}

static void apply_texts(struct service *a, const struct engine_texts *t, bool probe,
                        engines_taken_fn taken, void *ctx)
{
    struct engine_order *o = engine_order_new(a, NULL);
    struct err e = {0};

    o->taken = taken;
    o->taken_ctx = ctx;
    o->probe = probe;
    if (hold_set(o, &e) || engine_order_read_texts(o, t, &e))
        engine_order_fail(o, &e);
    else
        begin_order(o);
}

void engines_apply_source(struct service *a, const struct engine_texts *t, engines_taken_fn taken,
                          void *ctx)
{
    apply_texts(a, t, true, taken, ctx);
}

static void on_set_obeyed(void *ctx, struct str silent, const struct err *e)
{
    struct err *ret = ctx;

    (void)silent;
    if (e)
        *ret = *e;
}

int engines_obey(struct service *a, const struct json *list, struct err *e)
{
    const char *source = a->config->engine_source;
    struct engine_texts texts = {0};
    struct arena arena = {0};

    if (source && *source) {
        log_warn(NULL, "this node has --engine-source, ignoring the engines of the fleet");
        return 0;
    }
    *e = (struct err){0};
    for (uint32_t i = 0; i < list->n; i++)
        *vec_push(&texts) = arena_cstr(&arena, json_string(&list->items[i]));
    apply_texts(a, &texts, false, on_set_obeyed, e); /* ends at once without a probe */
    vec_done(&texts);
    arena_done(&arena);
    return e->kind == ERR_NONE ? 0 : -1;
}

void admin_engines_put(struct service_request *r)
{
    begin_change(r, CHANGE_ALL);
}

void admin_engines_post(struct service_request *r)
{
    begin_change(r, CHANGE_MORE);
}

void admin_engines_delete(struct service_request *r)
{
    begin_change(r, CHANGE_LESS);
}

void admin_engines(struct service_request *r)
{
    struct engine_pool *pool = r->service->calls.engines;
    struct buf body = {0};

    buf_printf(&body,
               "{\"edition\":%llu,\"engines\":", (unsigned long long)engine_pool_edition(pool));
    engine_pool_write(pool, &body);
    heritage_put_unreachable(r->service->heritage, &(struct json_out){&body, true});
    buf_puts(&body, "}");
    respond_count(r->service, r->dialect, 200);
    exchange_reply(r->x, 200, "application/json", buf_str(&body));
    buf_done(&body);
}

void engines_done(struct service *a)
{
    struct engine_order *o, *next;
    struct err e = {0};

    LIST_EACH_SAFE(&a->engine_orders, o, next, struct engine_order, item) {
        if (o->trying || o->obeying) {
            (void)err_set(&e, ERR_DRAINING,
                          o->obeying ? "this worker ends, and the fleet may have the order: repeat "
                                       "it"
                                     : "this worker ends; nothing has changed");
            fleet_orders_forget(a, o);
            engine_pool_untry(a->calls.engines);
            engine_order_fail(o, &e);
        } else if (!o->round) {
            engine_order_answer(o);
        }
    }
}
