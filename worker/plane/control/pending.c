/* Sends answers that wait for the journal (pending.h): the body is made first, and sent when the
 * record is durable. */

#include "worker/plane/control/pending.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

struct durable_answer {
    struct service *service;
    struct exchange *x;
    unsigned dialect;
    int status;
    char request_id[40];
    struct buf body;
};

static void pending_free(struct durable_answer *p)
{
    buf_done(&p->body);
    free(p);
}

/* The client left before; what was recorded stays recorded. */
static void on_closed(void *ctx, bool delivered)
{
    struct durable_answer *p = ctx;

    (void)delivered;
    ledger_forget(p->service->calls.ledger, p);
    pending_free(p);
}

struct durable_answer *durable_answer_new(struct service_request *r, int status)
{
    struct durable_answer *p = mem_zalloc(sizeof(*p));

    p->service = r->service;
    p->x = r->x;
    p->dialect = r->dialect;
    p->status = status;
    memcpy(p->request_id, r->request_id, sizeof(p->request_id));
    exchange_watch(p->x, on_closed, p);
    return p;
}

struct buf *durable_answer_body(struct durable_answer *p)
{
    return &p->body;
}

static void on_durable(void *ctx)
{
    struct durable_answer *p = ctx;

    exchange_watch(p->x, NULL, NULL);
    respond_count(p->service, p->dialect, p->status);
    exchange_reply(p->x, p->status, "application/json", buf_str(&p->body));
    pending_free(p);
}

void durable_answer_fail(struct durable_answer *p, const struct err *e)
{
    exchange_watch(p->x, NULL, NULL);
    respond_error_to(p->service, p->x, NULL, p->dialect, p->request_id, e);
    pending_free(p);
}

static void on_failed(void *ctx, const struct err *e)
{
    durable_answer_fail(ctx, e);
}

struct ledger_done durable_answer_done(struct durable_answer *p)
{
    return (struct ledger_done){on_durable, p, on_failed};
}
