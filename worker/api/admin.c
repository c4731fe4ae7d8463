/* Weight updates: version stamp, pause and resume of the engine pool. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/api/handlers.h"
#include "worker/api/reply.h"

enum { DRAIN_DEFAULT_S = 300, DRAIN_MAX_S = 86400 };

static int read_object(struct api_request *r, struct arena *a, const struct json **ret,
                       struct err *e)
{
    struct str body = str_trim(exchange_body(r->x));

    *ret = NULL;
    if (body.len > 0 && json_parse(a, body, ret, e))
        return -1;
    if (*ret && !json_is(*ret, JSON_OBJECT))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    return 0;
}

void admin_weight_version(struct api_request *r)
{
    struct arena a = {0};
    struct err e = {0};
    const struct json *body;
    const struct json *version;

    if (read_object(r, &a, &body, &e) == 0) {
        version = json_get(body, "version");
        if (!json_is(version, JSON_NUMBER) && !json_is(version, JSON_STRING) &&
            !(body && json_is(version, JSON_NULL)))
            (void)err_field(&e, "version", "version must be a number or a string");
        else
            engine_pool_set_version(r->api->turns.engines, json_text(version));
    }
    if (e.kind != ERR_NONE)
        reply_error(r, NULL, &e);
    else
        reply_status_ok(r);
    arena_done(&a);
}

/* A pause that waits until nothing is in flight. */
struct drain_wait {
    struct api *api;
    struct exchange *x;
    struct loop_timer timer;
    unsigned dialect;
    bool watching;
};

static void drain_end(struct drain_wait *w, bool drained)
{
    struct buf body = {0};

    loop_timer_stop(w->api->turns.loop, &w->timer);
    if (w->x) {
        exchange_watch(w->x, NULL, NULL);
        buf_printf(&body, "{\"status\":\"ok\",\"drained\":%s,\"inflight\":%zu}",
                   drained ? "true" : "false", engine_pool_inflight(w->api->turns.engines));
        reply_count(w->api, w->dialect, 200);
        exchange_reply(w->x, 200, "application/json", buf_str(&body));
    }
    buf_done(&body);
    free(w);
}

static void on_drained(void *ctx)
{
    drain_end(ctx, true);
}

static void on_drain_timeout(struct loop_timer *t)
{
    struct drain_wait *w = CONTAINER_OF(t, struct drain_wait, timer);

    engine_pool_pause(w->api->turns.engines, ENGINE_HOLD, NULL, NULL);
    drain_end(w, false);
}

static void on_drain_closed(void *ctx, bool delivered)
{
    struct drain_wait *w = ctx;

    (void)delivered;
    w->x = NULL;
}

void admin_pause(struct api_request *r)
{
    struct arena a = {0};
    struct err e = {0};
    const struct json *body;
    struct str mode = STR("drain");
    int64_t timeout_s = DRAIN_DEFAULT_S;

    if (read_object(r, &a, &body, &e) == 0) {
        if (!json_is_null(json_get(body, "mode")))
            mode = json_string(json_get(body, "mode"));
        if (!json_is_null(json_get(body, "timeout_s")) &&
            (json_to_i64(json_get(body, "timeout_s"), &timeout_s) || timeout_s < 0 ||
             timeout_s > DRAIN_MAX_S))
            (void)err_field(&e, "timeout_s", "timeout_s must be between 0 and %d", DRAIN_MAX_S);
        else if (!str_eq_c(mode, "drain") && !str_eq_c(mode, "hold"))
            (void)err_field(&e, "mode", "mode must be drain or hold");
    }
    if (e.kind != ERR_NONE) {
        reply_error(r, NULL, &e);
    } else if (str_eq_c(mode, "hold")) {
        engine_pool_pause(r->api->turns.engines, ENGINE_HOLD, NULL, NULL);
        reply_status_ok(r);
    } else {
        struct drain_wait *w = mem_zalloc(sizeof(*w));

        w->api = r->api;
        w->x = r->x;
        w->dialect = r->dialect;
        exchange_watch(w->x, on_drain_closed, w);
        loop_timer_set(w->api->turns.loop, &w->timer, (uint64_t)timeout_s * 1000, on_drain_timeout);
        engine_pool_pause(w->api->turns.engines, ENGINE_DRAIN, on_drained, w);
    }
    arena_done(&a);
}

void admin_resume(struct api_request *r)
{
    engine_pool_pause(r->api->turns.engines, ENGINE_RUN, NULL, NULL);
    reply_status_ok(r);
}
