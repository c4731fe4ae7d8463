/*
 * /admin/engines: reads and changes the set of engines. A change is one order. New engines are
 * opened beside the others and must answer. Then the new set is written to the state folder, and
 * this worker applies it, and then the others (each reads the file). A worker that missed the
 * change sees it in the file within a second; a new worker starts with it. A lock on the folder
 * allows only one order at a time in the whole gateway. If the client leaves or a step fails before
 * the set is written, nothing has changed.
 */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/engine_source.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

enum { LOOK_MS = 50 };

/* What an order does with the engines given: replace the set, add to the set, or remove from the
 * set. */
enum engine_change { CHANGE_ALL, CHANGE_MORE, CHANGE_LESS };

struct engine_order {
    struct list_item item; /* in service->engine_orders */
    struct service *service;
    struct exchange *x; /* exchange of the request; NULL: the client has left */
    unsigned dialect;
    enum engine_change change;
    int lock_fd; /* lock of the set; -1: released */
    bool probe, trying;
    /* time until which the order waits for removed engines to finish their requests */
    uint64_t until_ms;
    struct engine_set now, next;
    struct sibling_round *round;
    size_t failed;          /* number of workers that did not obey */
    engines_taken_fn taken; /* callback of an order from a source; NULL: an order by HTTP */
    void *taken_ctx;
    struct buf silent; /* engines of a source that do not answer, left out of `next` */
    struct loop_timer look;
    struct arena arena; /* memory of the names */
};

/* --- names of engines --- */

static const char *name_of(struct engine_order *o, const char *text)
{
    return engine_set_name(o->next.pools.n > 0 ? &o->next : &o->now, &o->arena, text);
}

static const struct engine_entry *find_text(const struct engine_set *s, const char *text)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->at[i].text, text) == 0)
            return &s->at[i];
    }
    return NULL;
}

/* Reports whether the name matches the engine's name, its pool's, or its whole argument. */
static bool is_called(struct engine_order *o, const struct engine_entry *entry, struct str name)
{
    const char *known = engine_set_name(&o->now, &o->arena, entry->text);
    const char *pool = engine_set_pool_of(&o->now, &o->arena, entry->text);

    return (known && str_eq_c(name, known)) || (pool && str_eq_c(name, pool)) ||
           str_eq_c(name, entry->text);
}

static bool is_any_called(struct engine_order *o, struct str name)
{
    for (size_t i = 0; i < o->now.n; i++) {
        if (is_called(o, &o->now.at[i], name))
            return true;
    }
    return false;
}

/* --- the end of an order --- */

static void order_free(struct engine_order *o)
{
    loop_timer_stop(o->service->calls.loop, &o->look);
    if (o->x)
        exchange_watch(o->x, NULL, NULL);
    if (o->lock_fd >= 0)
        (void)close(o->lock_fd);
    list_remove(&o->item);
    engine_set_done(&o->now);
    engine_set_done(&o->next);
    buf_done(&o->silent);
    arena_done(&o->arena);
    free(o);
}

/* Takes the exchange out of the order, to be answered now. Returns NULL if the client has left. */
static struct exchange *detach_exchange(struct engine_order *o)
{
    struct exchange *x = o->x;

    o->x = NULL;
    if (x)
        exchange_watch(x, NULL, NULL);
    return x;
}

/* Ends the order with an error before its answer is sent, because the client may send the next
 * order as soon as it reads the answer. */
static void order_fail(struct engine_order *o, const struct err *e)
{
    struct exchange *x = detach_exchange(o);
    struct service *a = o->service;
    unsigned dialect = o->dialect;
    engines_taken_fn taken = o->taken;
    void *ctx = o->taken_ctx;

    order_free(o);
    if (x)
        respond_error_to(a, x, NULL, dialect, "", e);
    if (taken)
        taken(ctx, (struct str){0}, e);
}

/* Answers an order of a source, which was applied as far as possible. */
static void taken_answer(struct engine_order *o)
{
    engines_taken_fn taken = o->taken;
    void *ctx = o->taken_ctx;
    struct buf silent = o->silent;

    o->silent = (struct buf){0};
    order_free(o);
    taken(ctx, buf_str(&silent), NULL);
    buf_done(&silent);
}

/* Writes the names of those engines of `of` that `other` does not have. */
static void put_names(struct engine_order *o, const struct engine_set *of,
                      const struct engine_set *other, struct json_out *out)
{
    json_out_arr(out);
    for (size_t i = 0; i < of->n; i++) {
        if (!find_text(other, of->at[i].text))
            json_out_cstr(out, name_of(o, of->at[i].text));
    }
    json_out_end_arr(out);
}

/* Reports whether a removed engine still runs requests of any worker. */
static bool is_draining_engine(const struct engine_order *o)
{
    for (size_t i = 0; i < o->now.n; i++) {
        if (!find_text(&o->next, o->now.at[i].text) &&
            engine_pool_at_number(o->service->calls.engines, o->now.at[i].number) > 0)
            return true;
    }
    return false;
}

static void order_answer(struct engine_order *o)
{
    struct buf body = {0};
    struct json_out out = json_out_to(&body);
    struct service *a = o->service;
    unsigned dialect = o->dialect;
    struct exchange *x;
    struct err e = {0};

    if (o->failed > 0) {
        (void)err_set(&e, ERR_WORKER_UNAVAILABLE,
                      "the new set of engines is kept, but %zu workers did not obey yet",
                      o->failed);
        order_fail(o, &e);
        return;
    }
    json_out_obj(&out);
    json_out_member_cstr(&out, "status", "ok");
    json_out_member_i64(&out, "edition", (int64_t)o->next.edition);
    json_out_key(&out, "added");
    put_names(o, &o->next, &o->now, &out);
    json_out_key(&out, "removed");
    put_names(o, &o->now, &o->next, &out);
    json_out_member_bool(&out, "drained", !is_draining_engine(o));
    json_out_key(&out, "engines");
    engine_pool_write(o->service->calls.engines, &body);
    out.comma = true;
    heritage_put_unreachable(o->service->heritage, &out);
    json_out_end_obj(&out);
    x = detach_exchange(o);
    order_free(o);
    if (x) {
        respond_count(a, dialect, 200);
        exchange_reply(x, 200, "application/json", buf_str(&body));
    }
    buf_done(&body);
}

static void on_drain_check(struct loop_timer *t)
{
    struct engine_order *o = CONTAINER_OF(t, struct engine_order, look);

    if (o->x && is_draining_engine(o) && clock_ms() < o->until_ms)
        loop_timer_set(o->service->calls.loop, t, LOOK_MS, on_drain_check);
    else
        order_answer(o);
}

/* --- applying the set in all workers --- */

static void on_obeyed(void *ctx, struct str body)
{
    (void)ctx, (void)body;
}

static void on_round(void *ctx, const struct siblings_missing *missing)
{
    struct engine_order *o = ctx;

    o->round = NULL;
    o->failed = missing->workers;
    if (o->failed > 0)
        order_answer(o);
    else
        on_drain_check(&o->look);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

static void notify_others(struct engine_order *o)
{
    struct sibling_question q = {
        .method = "PUT", .path = STR("/admin/engines"), .from = o->x, .living = true};

    o->round = sibling_ask_all(siblings_of(o->service), &q, REACH_NODE, &round_fns, o);
    if (!o->round)
        on_drain_check(&o->look);
}

int engines_follow(struct service *a, struct err *e)
{
    uint64_t stamp = engine_set_stamp(a->heritage->state_dir);
    struct engine_set set;
    int rc = 0;

    if (stamp == 0 || stamp == a->engines_seen)
        return 0;
    a->engines_seen = stamp; /* a file that cannot be applied is reported once */
    if (engine_set_load(&set, a->engine_home, NULL, e))
        return -1;
    if (set.edition > engine_pool_edition(a->calls.engines))
        rc = engine_pool_set(a->calls.engines, &set, e);
    engine_set_done(&set);
    return rc;
}

/* --- from the request to the file --- */

/* Writes the new set, and applies it here and in the other workers. Everything that can fail was
 * tried before. */
static void commit_order(struct engine_order *o)
{
    struct service *a = o->service;
    struct err e = {0};

    o->trying = false;
    if (engine_set_save(&o->next, a->engine_home, &e) ||
        engine_pool_set(a->calls.engines, &o->next, &e)) {
        engine_pool_untry(a->calls.engines);
        order_fail(o, &e);
        return;
    }
    a->engines_seen = engine_set_stamp(a->heritage->state_dir);
    (void)close(o->lock_fd);
    o->lock_fd = -1;
    if (o->taken)
        taken_answer(o); /* the other workers see the file's change */
    else
        notify_others(o);
}

static bool is_as_before(const struct engine_order *o)
{
    for (size_t i = 0; i < o->next.n && o->next.n == o->now.n; i++) {
        if (strcmp(o->next.at[i].text, o->now.at[i].text) != 0)
            return false;
    }
    return o->next.n == o->now.n && o->next.pools.n == o->now.pools.n;
}

/* Removes the engines of a source that do not answer from the new set. */
static void keep_answering(struct engine_order *o, struct str silent)
{
    struct engine_set kept = {.edition = o->next.edition};

    for (size_t i = 0; i < o->next.n; i++) {
        const struct engine_entry *entry = &o->next.at[i];

        if (find_text(&o->now, entry->text) ||
            engine_pool_tried(o->service->calls.engines, entry->text))
            engine_set_add(&kept, str_cstr(entry->text), entry->number);
    }
    (void)engine_set_follow(&kept, &o->next, NULL); /* pools are as if all engines answered */
    engine_set_done(&o->next);
    o->next = kept;
    buf_add_str(&o->silent, silent);
    if (is_as_before(o)) {
        engine_pool_untry(o->service->calls.engines);
        taken_answer(o);
    } else {
        commit_order(o);
    }
}

static void on_tried(void *ctx, struct str silent)
{
    struct engine_order *o = ctx;
    struct err e = {0};

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
    order_fail(o, &e);
}

static void on_closed(void *ctx, bool delivered)
{
    struct engine_order *o = ctx;

    (void)delivered;
    o->x = NULL;
    if (!o->trying)
        return;
    engine_pool_untry(o->service->calls.engines);
    order_free(o);
}

/* Returns the lowest number that no engine of the old or the new set has, and none that still
 * drains. */
static unsigned free_number(const struct engine_order *o)
{
    const struct engine_set *const sets[] = {&o->now, &o->next};

    for (unsigned number = 0;; number++) {
        bool taken = engine_pool_at_number(o->service->calls.engines, number) > 0;

        for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
            for (size_t i = 0; i < sets[k]->n; i++)
                taken = taken || sets[k]->at[i].number == number;
        }
        if (!taken)
            return number;
    }
}

static void add_entry(struct engine_order *o, struct str text)
{
    const char *copy = arena_cstr(&o->arena, text);
    const struct engine_entry *known = find_text(&o->now, copy);

    if (!find_text(&o->next, copy))
        engine_set_add(&o->next, text, known ? known->number : free_number(o));
}

static int check_entry(struct engine_order *o, uint32_t i, struct str text, struct err *e)
{
    const struct config *c = o->service->config;
    struct engine_options with = {.ca_file = c->engine_ca_file,
                                  .insecure_tls = c->engine_insecure_tls};
    struct err why;

    if (engine_check(arena_cstr(&o->arena, text), &with, &why) == 0)
        return 0;
    return err_field(e, "engines", "engines[%u]: %s", i, why.text);
}

static bool has_policy(struct engine_order *o, const struct engine_set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!engine_set_pool_of(s, &o->arena, s->at[i].text))
            return true;
    }
    return false;
}

/* Refuses names that leave the policy without an engine: if all names are names of pools, and every
 * engine of the new set has one. */
static int check_policy(struct engine_order *o, struct err *e)
{
    if (o->change != CHANGE_ALL || o->next.n == 0 || has_policy(o, &o->next) ||
        !has_policy(o, &o->now))
        return 0;
    return err_field(e, "engines",
                     "none of these engines is the policy's: each has the name of a pool. Call the "
                     "policy's policy=KIND:URL or leave the name out; DELETE takes engines out");
}

static int read_new(struct engine_order *o, const struct json *list, struct err *e)
{
    struct err why;

    if (!json_is(list, JSON_ARRAY))
        return err_field(e, "engines", "engines is missing: a list of [NAME=]KIND:URL");
    for (size_t i = 0; o->change == CHANGE_MORE && i < o->now.n; i++)
        engine_set_add(&o->next, str_cstr(o->now.at[i].text), o->now.at[i].number);
    for (uint32_t i = 0; i < list->n; i++) {
        struct str text = json_string(&list->items[i]);

        if (check_entry(o, i, text, e))
            return -1;
        add_entry(o, text);
    }
    return engine_set_follow(&o->next, &o->now, &why) || engine_set_check(&o->next, &why)
               ? err_field(e, "engines", "%s", why.text)
               : check_policy(o, e);
}

static int read_names(struct engine_order *o, const struct json *list, struct str one,
                      struct err *e)
{
    uint32_t n = json_is(list, JSON_ARRAY) ? list->n : 0;

    if (n == 0 && !one.p)
        return err_field(e, "engines", "engines is missing: a list of names; or ?name=NAME");
    for (uint32_t i = 0; i < n + (one.p ? 1 : 0); i++) {
        struct str name = i < n ? json_string(&list->items[i]) : one;

        if (!is_any_called(o, name))
            return err_set(e, ERR_NOT_FOUND, "no engine is called \"%.*s\"",
                           (int)MIN_OF(name.len, (size_t)200), name.p);
    }
    for (size_t k = 0; k < o->now.n; k++) {
        const struct engine_entry *entry = &o->now.at[k];
        bool named = one.p && is_called(o, entry, one);

        for (uint32_t i = 0; i < n; i++)
            named = named || is_called(o, entry, json_string(&list->items[i]));
        if (!named)
            engine_set_add(&o->next, str_cstr(entry->text), entry->number);
    }
    return engine_set_follow(&o->next, &o->now, e);
}

static int read_order(struct engine_order *o, struct service_request *r, struct arena *a,
                      struct err *e)
{
    const struct json *body = control_body(r), *list = json_get(body, "engines");
    struct str one = query_get(a, exchange_query(r->x), "name");
    uint64_t edition = engine_pool_edition(o->service->calls.engines);
    double wait_s = 0;

    (void)json_to_double(json_get(body, "timeout_s"), &wait_s);
    o->until_ms = clock_ms() + (uint64_t)llround(wait_s * 1000);
    o->probe =
        !json_is(json_get(body, "probe"), JSON_BOOL) || json_is_true(json_get(body, "probe"));
    o->next.edition = MAX_OF(o->now.edition, edition) + 1;
    return o->change == CHANGE_LESS ? read_names(o, list, one, e) : read_new(o, list, e);
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

    if (is_as_before(o)) {
        o->next.edition--;
        if (o->taken)
            taken_answer(o);
        else
            order_answer(o);
        return;
    }
    if (engine_pool_try(pool, &o->next, on_tried, o, &e)) {
        order_fail(o, &e);
        return;
    }
    o->trying = true;
    if (!o->probe)
        commit_order(o);
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

static struct engine_order *order_new(struct service *a)
{
    struct engine_order *o = mem_zalloc(sizeof(*o));

    o->service = a;
    o->lock_fd = -1;
    list_append(&a->engine_orders, &o->item);
    return o;
}

static void begin_change(struct service_request *r, enum engine_change change)
{
    const char *source = r->service->config->engine_source;
    struct arena a = {0};
    struct engine_order *o;
    struct err e = {0};

    if (reach_of_request(r->x) == REACH_PROCESS) {
        obey_order(r);
    } else if (source && *source) {
        (void)err_field(&e, "engines",
                        "the engines are those that --engine-source tells: change them there");
        respond_error(r, NULL, &e);
    } else {
        o = order_new(r->service);
        o->x = r->x;
        o->dialect = r->dialect;
        o->change = change;
        exchange_watch(o->x, on_closed, o);
        if (hold_set(o, &e) || read_order(o, r, &a, &e))
            order_fail(o, &e);
        else
            begin_order(o);
    }
    arena_done(&a);
}

static int read_source(struct engine_order *o, const struct engine_texts *t, struct err *e)
{
    uint64_t edition = engine_pool_edition(o->service->calls.engines);

    o->next.edition = MAX_OF(o->now.edition, edition) + 1;
    for (size_t i = 0; i < t->n; i++) {
        if (check_entry(o, (uint32_t)i, str_cstr(t->at[i]), e))
            return -1;
        add_entry(o, str_cstr(t->at[i]));
    }
    return engine_set_follow(&o->next, &o->now, e) ? -1 : engine_set_check(&o->next, e);
}

void engines_apply_source(struct service *a, const struct engine_texts *t, engines_taken_fn taken,
                          void *ctx)
{
    struct engine_order *o = order_new(a);
    struct err e = {0};

    o->taken = taken;
    o->taken_ctx = ctx;
    o->probe = true;
    if (hold_set(o, &e) || read_source(o, t, &e))
        order_fail(o, &e);
    else
        begin_order(o);
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

    (void)err_set(&e, ERR_DRAINING, "this worker ends; nothing has changed");
    LIST_EACH_SAFE(&a->engine_orders, o, next, struct engine_order, item) {
        if (o->trying) {
            engine_pool_untry(a->calls.engines);
            order_fail(o, &e);
        } else if (!o->round) {
            order_answer(o);
        }
    }
}
