/* The life of a request and its tasks: when it is freed, and what happens if a thread hangs. */
#include <stdlib.h>

#include "common/base/cancel.h"
#include "common/os/task.h"
#include "common/serve/exchange.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/respond.h"
#include "worker/session/store/session.h"

static void free_call(struct api_call *c)
{
    known_reading_free(c->known);
    if (c->written)
        c->written(c->written_ctx);
    buf_done(&c->out);
    api_call_free_arena(c);
    free(c);
}

static void end_if_over(struct api_call *c)
{
    if (c->left && !c->task && !c->writing)
        free_call(c);
}

void api_call_left(struct api_call *c)
{
    c->left = true;
    if (c->task && !c->asks)
        task_cancel(c->task);
    if (c->writing)
        task_cancel(c->writing);
    end_if_over(c);
}

/* The client left, or the answer was sent. In both cases this request is over. */
static void on_closed(void *ctx, bool delivered)
{
    struct api_call *c = ctx;

    (void)delivered; /* on_arrived is called if the client has the answer */
    model_call_leave(&c->listener);
    api_call_left(c);
}

void api_call_begin_task(struct api_call *c)
{
    c->task = task_running;
    task_on_lost(api_call_on_lost, c);
    exchange_watch(c->x, on_closed, c);
}

void api_call_end_task(struct api_call *c)
{
    if (c->held)
        session_unpin(c->service->calls.store, c->held);
    c->held = NULL;
    c->task = NULL;
    end_if_over(c);
}

void api_call_end_writing(struct api_call *c)
{
    c->writing = NULL;
    end_if_over(c);
}

int api_call_offload(struct api_call *c, const struct task_work *w, struct err *e)
{
    int rc;

    c->reads_body = true;
    exchange_hold(c->x);
    rc = task_offload(w, e);
    c->reads_body = false;
    exchange_unhold(c->x);
    return c->left ? cancel_fail(e) : rc;
}

/* Handles a lost helper: memory that its thread may read is never freed. */
void api_call_on_lost(void *ctx)
{
    struct api_call *c = ctx;
    struct err e = {0};

    work_report_hung(c->body_hash, &e);
    if (c->pictures)
        c->service->calls.n_fetching--;
    if (c->reads_body)
        exchange_strand(c->x);
    if (!c->left)
        respond_error(&c->request, c->dialect, &e);
}
