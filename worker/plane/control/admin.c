/*
 * Pauses and resumes the engine pool and stamps its weight version, for weight updates. An order
 * that one worker gets is sent to all others ("?local=1" marks the copies) and is answered when all
 * have obeyed.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/version_round.h"
#include "worker/engine/pool/weights_file.h"
#include "worker/plane/control/handlers.h"
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
    bool draining; /* this worker waits for its own calls to end */
    bool drained;
    bool others_busy;            /* a different worker gave up waiting for its calls */
    struct buf version;          /* version that is set on the engines */
    struct buf told;             /* the engines' result, as JSON */
    struct buf path, body, keys; /* of the request, for the others */
    enum reach reach;
    double work_s; /* time that a node may need for the order, besides NODE_S */
    size_t workers_failed, nodes_failed;
    struct buf names;  /* of the nodes that failed */
    struct buf obeyed; /* other nodes that obeyed, as JSON members */
};

static void order_free(struct pause_order *o)
{
    buf_done(&o->version);
    buf_done(&o->told);
    buf_done(&o->path);
    buf_done(&o->body);
    buf_done(&o->keys);
    buf_done(&o->names);
    buf_done(&o->obeyed);
    free(o);
}

/* Fails if the order did not reach all. */
static int check_reached(const struct pause_order *o, struct err *e)
{
    if (o->nodes_failed > 0)
        return err_set(e, ERR_WORKER_UNAVAILABLE,
                       "%zu nodes did not obey (%.*s), all others did: send it again",
                       o->nodes_failed, (int)MIN_OF(o->names.len, (size_t)200), o->names.p);
    if (o->workers_failed > 0)
        return err_set(e, ERR_WORKER_UNAVAILABLE, "%zu workers did not obey", o->workers_failed);
    return 0;
}

/* Names the nodes that have obeyed, or those that were not asked. */
static void put_nodes(const struct pause_order *o, struct json_out *out)
{
    const struct heritage *h = o->service->heritage;

    if (!h->fleet)
        heritage_put_unreachable(h, out);
    else if (o->reach == REACH_FLEET)
        siblings_put_obeyed(h, buf_str(&o->obeyed), out);
}

/* Answers the order when both parts are over: this worker's own drain and the others' answers. The
 * order lives until then even if its client has left. */
static void order_end(struct pause_order *o)
{
    struct buf body = {0};
    struct err e = {0};

    if (o->draining || o->round)
        return;
    loop_timer_stop(o->service->calls.loop, &o->timer);
    if (!o->x) {
        if (check_reached(o, &e))
            log_warn(NULL, "an order whose client has left did not reach all",
                     LOG_T("error", e.text));
        order_free(o);
        return;
    }
    exchange_watch(o->x, NULL, NULL);
    if (check_reached(o, &e)) {
        respond_error_to(o->service, o->x, NULL, o->dialect, "", &e);
    } else {
        buf_printf(&body, "{\"status\":\"ok\",\"drained\":%s",
                   o->drained && !o->others_busy ? "true" : "false");
        if (o->told.len > 0)
            buf_printf(&body, ",\"engines\":%.*s", (int)o->told.len, o->told.p);
        put_nodes(o, &(struct json_out){&body, true});
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
    o->workers_failed = missing->workers;
    o->nodes_failed = missing->nodes;
    buf_add_str(&o->names, missing->names);
    buf_add_str(&o->obeyed, missing->obeyed);
    order_end(o);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

/* Handles the end of the drain: this worker's own calls have ended, or the time for them is
 * over. */
static void drain_end(struct pause_order *o, bool drained)
{
    loop_timer_stop(o->service->calls.loop, &o->timer);
    o->service->drain = NULL;
    o->draining = false;
    o->drained = drained;
    order_end(o);
}

static void on_drained(void *ctx)
{
    drain_end(ctx, true);
}

static void on_drain_timeout(struct loop_timer *t)
{
    struct pause_order *o = CONTAINER_OF(t, struct pause_order, timer);

    engine_pool_pause(o->service->calls.engines, ENGINE_HOLD, NULL, NULL);
    drain_end(o, false);
}

/* Begins a new pause or a resume: a drain that still waits is answered and its timer stopped. */
static void pause_anew(struct service *a, enum engine_pause mode)
{
    engine_pool_pause(a->calls.engines, mode, NULL, NULL);
    if (a->drain)
        drain_end(a->drain, false);
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
static struct pause_order *order_new(struct service_request *r)
{
    struct pause_order *o = mem_zalloc(sizeof(*o));

    o->service = r->service;
    o->x = r->x;
    o->dialect = r->dialect;
    o->reach = reach_of_request(r->x);
    buf_add_str(&o->path, exchange_path(r->x));
    buf_add_str(&o->body, exchange_body(r->x));
    siblings_write_keys(r->x, &o->keys);
    exchange_watch(o->x, on_closed, o);
    return o;
}

/* Sends the order to the others. Nodes that are lost record nothing, so they need not obey. */
static void ask_others(struct pause_order *o)
{
    struct sibling_question q = {.method = "POST",
                                 .path = buf_str(&o->path),
                                 .body = buf_str(&o->body),
                                 .keys = buf_str(&o->keys),
                                 .node_timeout_ms = (uint64_t)((o->work_s + NODE_S) * 1000),
                                 .living = true};

    o->round = sibling_ask_all(siblings_of(o->service), &q, o->reach, &round_fns, o);
}

/* Sends the order to the others, and answers when all have obeyed. */
static void order_give(struct pause_order *o)
{
    ask_others(o);
    order_end(o);
}

static bool is_local(struct service_request *r)
{
    return reach_of_request(r->x) == REACH_PROCESS;
}

int weights_follow(struct service *a, struct err *e)
{
    uint64_t stamp = weights_stamp(a->heritage->state_dir);
    struct weights_told told;

    if (stamp == a->weights_seen)
        return 0;
    a->weights_seen = stamp; /* a file that cannot be read is reported once */
    if (weights_load(a->heritage->state_dir, &told, e))
        return -1;
    engine_pool_follow(a->calls.engines, &told);
    weights_told_done(&told);
    return 0;
}

/* Writes the trainer's version to the file, and applies it. */
static int keep_weights(struct service *a, struct str adapter, struct str version, struct err *e)
{
    const struct heritage *h = a->heritage;

    if (weights_tell(h->state_dir, adapter, version, h->config->durability == DURABILITY_POWER, e))
        return -1;
    if (adapter.len == 0)
        run_note_version(&a->calls, version);
    return weights_follow(a, e);
}

/* Like keep_weights, but with "?local=1" only applies the version, because a different worker has
 * written it. */
static int tell_weights(struct service_request *r, struct str adapter, const struct json *version,
                        struct err *e)
{
    return is_local(r) ? weights_follow(r->service, e)
                       : keep_weights(r->service, adapter, json_text(version), e);
}

/* Called after the engines were told, or could not be: sets the version in the gateway, of all
 * nodes, even if the client has left. */
static void on_engines_told(void *ctx, struct version_round *round)
{
    struct pause_order *o = ctx;
    struct json_out out = json_out_to(&o->told);
    struct err e = {0};

    version_round_write(round, &out);
    if (keep_weights(o->service, (struct str){0}, buf_str(&o->version), &e) == 0) {
        order_give(o);
        return;
    }
    if (o->x) {
        exchange_watch(o->x, NULL, NULL);
        respond_error_to(o->service, o->x, NULL, o->dialect, "", &e);
    } else {
        log_error(NULL, "a version of the weights was not kept", LOG_T("error", e.text));
    }
    order_free(o);
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
    o = order_new(r);
    buf_add_str(&o->version, version);
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
    bool engines = json_is_true(json_get(body, "engines")) && !is_local(r);

    if (!version)
        (void)err_field(&e, "version", "version is missing: the version of the weights");
    else if (engines)
        (void)tell_engines(r, body, &e);
    else
        (void)tell_weights(r, (struct str){0}, version, &e);
    if (e.kind != ERR_NONE)
        respond_error(r, NULL, &e);
    else if (!engines)
        order_give(order_new(r));
}

/* Sets the version of one LoRA adapter, for the answers that are sampled with it. */
void admin_adapters(struct service_request *r)
{
    struct err e = {0};
    const struct json *body = control_body(r), *version = json_get(body, "version");
    struct str name = json_string(json_get(body, "name"));

    if (!name.len || !version)
        (void)err_field(&e, name.len ? "version" : "name", "name and version are needed");
    else
        (void)tell_weights(r, name, version, &e);
    if (e.kind != ERR_NONE)
        respond_error(r, NULL, &e);
    else
        order_give(order_new(r));
}

void admin_adapters_get(struct service_request *r)
{
    struct buf answer = {0};

    buf_puts(&answer, "{\"adapters\":");
    engine_pool_write_loras(r->service->calls.engines, &answer);
    heritage_put_unreachable(r->service->heritage, &(struct json_out){&answer, true});
    buf_add_c(&answer, '}');
    respond_json(r, &answer);
    buf_done(&answer);
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
    struct engine_pool *pool = r->service->calls.engines;
    double timeout_s;
    bool drain;
    struct pause_order *o;

    read_pause(r, &drain, &timeout_s);
    pause_anew(r->service, ENGINE_HOLD);
    o = order_new(r);
    o->work_s = drain ? timeout_s : 0;
    if (drain) {
        o->draining = true;
        r->service->drain = o;
        loop_timer_set(r->service->calls.loop, &o->timer, (uint64_t)(timeout_s * 1000),
                       on_drain_timeout);
    }
    ask_others(o);
    if (drain)
        engine_pool_pause(pool, ENGINE_DRAIN, on_drained, o);
    else
        order_end(o);
}

void admin_resume(struct service_request *r)
{
    pause_anew(r->service, ENGINE_RUN);
    order_give(order_new(r));
}
