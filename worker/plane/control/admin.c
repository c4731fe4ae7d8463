/*
 * Pauses and resumes the engine pool and stamps its weight version, for weight updates. An order
 * that one worker gets is sent to all others ("?local=1" marks the copies) and is answered when all
 * have obeyed. In a fleet it is written to the store first (fleet_orders.h), and the copies name
 * its edition.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/version_round.h"
#include "worker/plane/control/fleet_orders.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/order_outcome.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

enum { DRAIN_DEFAULT_S = 300, TELL_DEFAULT_S = 30, NODE_S = 30 };

/* One order in progress: this worker's own part and the others'. */
struct pause_order {
    struct service *service;
    struct exchange *x; /* NULL: the client has left */
    struct loop_timer timer;
    struct sibling_round *round; /* requests to the other workers; NULL: all have answered */
    unsigned dialect;
    enum fleet_order kind;
    bool drains;   /* the order waits for running calls */
    bool obeying;  /* the order is being written to the fleet's store, or read from there */
    bool draining; /* this worker waits for its own calls to end */
    bool drained;
    bool others_busy;                    /* a different worker gave up waiting for its calls */
    struct buf adapter, value;           /* the version; of a pause or resume: JSON */
    struct buf told;                     /* the engines' result, as JSON */
    struct buf method, path, body, keys; /* of the request, for the others */
    enum reach reach;
    uint64_t edition; /* of the fleet's orders; 0: the order is for this node alone */
    double work_s;    /* time that a node may need for the order, besides NODE_S */
    struct order_outcome outcome;
    char request_id[40];
};

static void order_free(struct pause_order *o)
{
    buf_done(&o->adapter);
    buf_done(&o->value);
    buf_done(&o->told);
    buf_done(&o->method);
    buf_done(&o->path);
    buf_done(&o->body);
    buf_done(&o->keys);
    order_outcome_done(&o->outcome);
    free(o);
}

/* Answers the order when both parts are over: this worker's own drain and the others' answers. The
 * order lives until then even if its client has left. */
static void order_end(struct pause_order *o)
{
    struct buf body = {0};
    struct err e = {0};

    if (o->obeying || o->draining || o->round)
        return;
    loop_timer_stop(o->service->calls.loop, &o->timer);
    if (!o->x) {
        if (order_outcome_check(&o->outcome, &e))
            log_warn(NULL, "an order whose client has left did not reach all",
                     LOG_T("error", e.text));
        order_free(o);
        return;
    }
    exchange_watch(o->x, NULL, NULL);
    if (order_outcome_check(&o->outcome, &e)) {
        respond_error_to(o->service, o->x, NULL, o->dialect, o->request_id, &e);
    } else {
        buf_printf(&body, "{\"status\":\"ok\",\"drained\":%s",
                   o->drained && !o->others_busy ? "true" : "false");
        if (o->edition > 0)
            buf_printf(&body, ",\"edition\":%llu", (unsigned long long)o->edition);
        if (o->told.len > 0)
            buf_printf(&body, ",\"engines\":%.*s", (int)o->told.len, o->told.p);
        order_outcome_write(&o->outcome, o->service->heritage, o->reach == REACH_FLEET,
                            &(struct json_out){&body, true});
        buf_add_c(&body, '}');
        respond_count(o->service, o->dialect, 200);
        exchange_reply(o->x, 200, "application/json", buf_str(&body));
    }
    buf_done(&body);
    order_free(o);
}

/* Handles the answer of one of the others. If one could not drain in time, the whole answer says
 * so. */
static void on_obeyed(void *ctx, struct str body)
{
    struct pause_order *o = ctx;
    struct arena a = {0};
    const struct json *v;
    struct err e;

    if (json_parse(&a, body, &v, &e) != 0 || !json_is_true(json_get(v, "drained")))
        o->others_busy = true;
    arena_done(&a);
}

/* Called when all others have answered or failed. */
static void on_round(void *ctx, const struct siblings_missing *missing)
{
    struct pause_order *o = ctx;

    o->round = NULL;
    order_outcome_record(&o->outcome, missing);
    order_end(o);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

/* Handles the end of the service's drain: this worker's own calls have ended, or the time for them
 * is over. */
static void drain_end(struct service *a, bool drained)
{
    struct pause_order *o = a->drain;

    loop_timer_stop(a->calls.loop, &o->timer);
    a->drain = NULL;
    o->draining = false;
    o->drained = drained;
    order_end(o);
}

static void on_drained(void *ctx)
{
    struct pause_order *o = ctx;

    drain_end(o->service, true);
}

static void on_drain_timeout(struct loop_timer *t)
{
    struct pause_order *o = CONTAINER_OF(t, struct pause_order, timer);

    engine_pool_pause(o->service->calls.engines, ENGINE_HOLD, NULL, NULL);
    drain_end(o->service, false);
}

/* Begins a new pause or a resume: a drain that still waits is answered and its timer stopped. */
static void pause_anew(struct service *a, enum engine_pause mode)
{
    engine_pool_pause(a->calls.engines, mode, NULL, NULL);
    if (a->drain)
        drain_end(a, false);
}

void pause_obey(struct service *a, bool paused)
{
    pause_anew(a, paused ? ENGINE_HOLD : ENGINE_RUN);
}

void admin_done(struct service *a)
{
    if (a->calls.engines) /* a worker that could not start has no engines */
        version_round_stop(a->calls.engines);
    engines_done(a);
    if (a->drain)
        pause_anew(a, ENGINE_HOLD);
}

static void on_closed(void *ctx, bool delivered)
{
    struct pause_order *o = ctx;

    (void)delivered;
    o->x = NULL;
}

/* Makes an order that watches its client. */
static struct pause_order *order_new(struct service_request *r, enum fleet_order kind)
{
    struct pause_order *o = mem_zalloc(sizeof(*o));

    o->service = r->service;
    o->x = r->x;
    o->dialect = r->dialect;
    o->kind = kind;
    o->reach = reach_of_request(r->x);
    o->edition = fleet_orders_edition(r->x);
    buf_add_str(&o->method, exchange_method(r->x));
    buf_add_c(&o->method, '\0');
    buf_add_str(&o->path, exchange_path(r->x));
    buf_add_str(&o->body, exchange_body(r->x));
    siblings_write_keys(r->x, &o->keys);
    memcpy(o->request_id, r->request_id, sizeof(o->request_id));
    exchange_watch(o->x, on_closed, o);
    return o;
}

/* Sends the order to the others. Nodes that are lost record nothing, so they need not obey. */
static void ask_others(struct pause_order *o)
{
    struct sibling_question q = {.method = o->method.p,
                                 .body = buf_str(&o->body),
                                 .keys = buf_str(&o->keys),
                                 .node_timeout_ms = (uint64_t)((o->work_s + NODE_S) * 1000),
                                 .living = true,
                                 .edition = o->edition};

    if (o->edition > 0)
        buf_printf(&o->path, "?edition=%llu", (unsigned long long)o->edition);
    q.path = buf_str(&o->path);
    o->round = sibling_ask_all(siblings_of(o->service), &q, o->reach, &round_fns, o);
}

static void order_fail(struct pause_order *o, const struct err *e)
{
    if (o->x) {
        exchange_watch(o->x, NULL, NULL);
        respond_error_to(o->service, o->x, NULL, o->dialect, o->request_id, e);
    } else {
        log_error(NULL, "an order whose client has left was not obeyed", LOG_T("error", e->text));
    }
    order_free(o);
}

/* Begins to wait for this worker's calls, unless a newer order has resumed them. */
static void drain_begin(struct pause_order *o)
{
    struct service *a = o->service;

    if (!o->drains || !atomic_load(&a->heritage->board->paused))
        return;
    if (a->drain)
        pause_anew(a, ENGINE_HOLD);
    o->draining = true;
    a->drain = o;
    loop_timer_set(a->calls.loop, &o->timer, (uint64_t)(o->work_s * 1000), on_drain_timeout);
}

/* This worker obeys: sends the order to the others, and answers when all have obeyed. */
static void order_spread(struct pause_order *o)
{
    drain_begin(o);
    ask_others(o);
    if (o->draining)
        engine_pool_pause(o->service->calls.engines, ENGINE_DRAIN, on_drained, o);
    else
        order_end(o);
}

/* Another worker of this node may have written the files. */
static int follow_files(struct service *a, struct err *e)
{
    return engines_follow(a, e) || weights_follow(a, e) ? -1 : 0;
}

static void on_obeyed_here(void *ctx, uint64_t edition, const struct err *e)
{
    struct pause_order *o = ctx;
    struct err why;

    o->obeying = false;
    o->edition = edition;
    if (e)
        order_fail(o, e);
    else if (follow_files(o->service, &why))
        order_fail(o, &why);
    else
        order_spread(o);
}

/* Obeys an order that is not the fleet's. With "?local=1" a different worker has written the
 * version to the file. */
static int obey_here(struct pause_order *o, struct err *e)
{
    if (o->kind == FLEET_PAUSED) {
        pause_obey(o->service, str_eq_c(buf_str(&o->value), "true"));
        return 0;
    }
    if (o->reach == REACH_PROCESS)
        return weights_follow(o->service, e);
    return weights_keep(o->service, buf_str(&o->adapter), buf_str(&o->value), e);
}

/* Obeys, then sends the order to the others. */
static void order_begin(struct pause_order *o)
{
    struct service *a = o->service;
    const struct fleet_change change = {
        .kind = o->kind, .adapter = buf_str(&o->adapter), .value = buf_str(&o->value)};
    struct err e;

    if (!a->orders || (o->edition == 0 && o->reach != REACH_FLEET)) {
        o->edition = 0;
        if (obey_here(o, &e) != 0)
            order_fail(o, &e);
        else
            order_spread(o);
        return;
    }
    o->obeying = true;
    if (o->edition > 0)
        fleet_orders_obey(a, o->edition, on_obeyed_here, o);
    else
        fleet_orders_change(a, &change, on_obeyed_here, o);
}

/* Called after the engines were told, or could not be: sets the version in the gateway, of all
 * nodes, even if the client has left. */
static void on_engines_told(void *ctx, struct version_round *round)
{
    struct pause_order *o = ctx;
    struct json_out out = json_out_to(&o->told);

    version_round_write(round, &out);
    order_begin(o);
}

/* Sets the version on the engines that have a route for it. They report the version themselves from
 * then on. */
static int tell_engines(struct service_request *r, const struct json *body, struct err *e)
{
    struct str version = json_text(json_get(body, "version"));
    double timeout_s = TELL_DEFAULT_S;
    struct pause_order *o;

    if (version.len == 0)
        return err_field(e, "version", "version must be one when the engines are told it");
    (void)json_to_double(json_get(body, "timeout_s"), &timeout_s);
    o = order_new(r, FLEET_VERSION);
    buf_add_str(&o->value, version);
    o->work_s = timeout_s;
    if (version_round_begin(r->service->calls.engines, version, (uint64_t)(timeout_s * 1000),
                            on_engines_told, o, e) == 0)
        return 0;
    exchange_watch(o->x, NULL, NULL);
    order_free(o);
    return -1;
}

/* The version is stamped on checkpoints that are committed from now on. */
void admin_weight_version(struct service_request *r)
{
    struct err e = {0};
    const struct json *body = control_body(r), *version = json_get(body, "version");
    bool engines =
        json_is_true(json_get(body, "engines")) && reach_of_request(r->x) != REACH_PROCESS;
    struct pause_order *o;

    if (!version)
        (void)err_field(&e, "version", "version is missing: the version of the weights");
    else if (engines)
        (void)tell_engines(r, body, &e);
    if (e.kind != ERR_NONE) {
        respond_error(r, NULL, &e);
    } else if (!engines) {
        o = order_new(r, FLEET_VERSION);
        buf_add_str(&o->value, json_text(version));
        order_begin(o);
    }
}

/* Sets the version of one LoRA adapter, for the answers that are sampled with it. */
void admin_adapters(struct service_request *r)
{
    struct err e = {0};
    const struct json *body = control_body(r), *version = json_get(body, "version");
    struct str name = json_string(json_get(body, "name"));
    struct pause_order *o;

    if (!name.len || !version) {
        (void)err_field(&e, name.len ? "version" : "name", "name and version are needed");
        respond_error(r, NULL, &e);
        return;
    }
    o = order_new(r, FLEET_ADAPTERS);
    buf_add_str(&o->adapter, name);
    buf_add_str(&o->value, json_text(version));
    order_begin(o);
}

/* Reads mode and time limit, which inputs.def has checked. */
static void read_pause(const struct service_request *r, bool *ret_drain, double *ret_s)
{
    const struct json *body = control_body(r);

    *ret_drain = !str_eq_c(json_string(json_get(body, "mode")), "hold");
    *ret_s = DRAIN_DEFAULT_S;
    (void)json_to_double(json_get(body, "timeout_s"), ret_s);
}

/* Holds new engine calls back at once. With `drain` the answer waits for those that run. */
void admin_pause(struct service_request *r)
{
    struct pause_order *o = order_new(r, FLEET_PAUSED);
    double timeout_s;

    read_pause(r, &o->drains, &timeout_s);
    o->work_s = o->drains ? timeout_s : 0;
    buf_puts(&o->value, "true");
    order_begin(o);
}

void admin_resume(struct service_request *r)
{
    struct pause_order *o = order_new(r, FLEET_PAUSED);

    buf_puts(&o->value, "false");
    order_begin(o);
}

void admin_obey(struct service_request *r)
{
    order_begin(order_new(r, FLEET_ENGINES));
}
