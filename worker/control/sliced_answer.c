#include "worker/control/sliced_answer.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/serve/exchange.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"

enum { SLICE_BYTES = 64 << 10, SLICE_US = 250 };

/* Lets the session go, of which what is freed may hold something. */
static void end(struct sliced_answer *a)
{
    struct call_env *env = &a->request.service->calls;
    struct session *s = a->session;

    loop_task_cancel(env->loop, &a->later);
    buf_done(&a->out);
    a->free(a);
    session_unpin(env->store, s);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    end(ctx);
}

/* As step. */
static int make_slice(struct sliced_answer *a, struct err *e)
{
    uint64_t end_us = clock_us() + SLICE_US;
    int rc;

    do
        rc = a->step(a, e);
    while (rc == 0 && a->out.len < SLICE_BYTES && clock_us() < end_us);
    return rc;
}

static void on_later(struct loop_task *t)
{
    struct sliced_answer *a = CONTAINER_OF(t, struct sliced_answer, later);
    struct exchange *x = a->request.x;
    struct err e = {0};
    int rc = make_slice(a, &e);

    if (rc < 0) {
        log_warn(&(struct log_scope){.session = session_id(a->session)}, a->broken,
                 LOG_T("error", e.text));
        exchange_fail(x);
        return;
    }
    if (rc == 0 && a->out.len == 0) { /* one long step that made nothing: nobody asks again */
        loop_task_post_behind(a->request.service->calls.loop, t, on_later);
        return;
    }
    exchange_send(x, &a->out);
    if (rc == 1)
        exchange_end(x);
}

/* A fast client takes slice after slice: each waits for the next turn of the loop. */
static void on_more(void *ctx)
{
    struct sliced_answer *a = ctx;

    loop_task_post(a->request.service->calls.loop, &a->later, on_later);
}

/* The first slice was not all. */
static void begin_stream(struct sliced_answer *a)
{
    struct exchange *x = a->request.x;

    respond_count(a->request.service, a->request.dialect, 200);
    exchange_watch(x, on_closed, a);
    exchange_start(x, "application/json");
    exchange_send(x, &a->out);
    exchange_pull(x, on_more, a);
}

void sliced_answer_send(struct sliced_answer *a, const struct service_request *r, struct session *s)
{
    struct err e = {0};
    int rc;

    a->request = *r;
    a->session = s;
    session_pin(s);
    rc = make_slice(a, &e);
    if (rc == 0) {
        begin_stream(a);
        return;
    }
    if (rc < 0)
        respond_error(&a->request, NULL, &e);
    else
        respond_json(&a->request, &a->out);
    end(a);
}
