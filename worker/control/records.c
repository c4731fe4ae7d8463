/* GET /sessions/{id}?records=1. Every call's prompt is told anew, so that it grows with the square
 * of the session: made and sent in slices. What fits in one is a plain answer. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"
#include "worker/session/telling.h"

enum { SLICE_BYTES = 64 << 10, SLICE_US = 250 };

struct recounting {
    struct service_request request; /* until the answer has started */
    struct session_telling telling;
    struct buf out;
    struct loop_task later; /* the next slice, after everybody else had a turn */
};

/* Lets the session go. */
static void recounting_free(struct recounting *v)
{
    struct call_env *env = &v->request.service->calls;

    loop_task_cancel(env->loop, &v->later);
    session_unpin(env->store, v->telling.session);
    buf_done(&v->out);
    free(v);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    recounting_free(ctx);
}

/* 1: that was all. */
static int make_slice(struct recounting *v, struct err *e)
{
    uint64_t end_us = clock_us() + SLICE_US;
    int rc;

    do
        rc = session_tell(&v->telling, e);
    while (rc == 0 && v->out.len < SLICE_BYTES && clock_us() < end_us);
    return rc;
}

/* One slice; an error here can only break the connection. */
static void on_later(struct loop_task *t)
{
    struct recounting *v = CONTAINER_OF(t, struct recounting, later);
    struct exchange *x = v->request.x;
    struct err e = {0};
    int rc = make_slice(v, &e);

    if (rc < 0) {
        log_warn(&(struct log_scope){.session = session_id(v->telling.session)},
                 "a session's records cannot be told", LOG_T("error", e.text));
        exchange_fail(x);
        return;
    }
    exchange_send(x, &v->out);
    if (rc == 1)
        exchange_end(x);
}

/* A fast client takes slice after slice: each waits for the next turn of the loop. */
static void on_more(void *ctx)
{
    struct recounting *v = ctx;

    loop_task_post(v->request.service->calls.loop, &v->later, on_later);
}

/* The first slice was not all. */
static void begin_stream(struct recounting *v)
{
    struct exchange *x = v->request.x;

    respond_count(v->request.service, v->request.dialect, 200);
    exchange_watch(x, on_closed, v);
    exchange_start(x, "application/json");
    exchange_send(x, &v->out);
    exchange_pull(x, on_more, v);
}

/* A session whose records fit into a slice gets a plain answer, with errors as errors. */
void records_get(struct service_request *r, struct session *s)
{
    struct recounting *v = mem_zalloc(sizeof(*v));
    struct err e = {0};
    int rc;

    v->request = *r;
    v->telling =
        (struct session_telling){.session = s, .records = true, .out = json_out_to(&v->out)};
    session_pin(s);
    rc = make_slice(v, &e);
    if (rc == 0) {
        begin_stream(v);
        return;
    }
    if (rc < 0)
        respond_error(r, NULL, &e);
    else
        respond_json(r, &v->out);
    recounting_free(v);
}
