#include "worker/api/pending.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/api/respond.h"
#include "worker/turn/ledger.h"

struct pending {
    struct api *api;
    struct exchange *x;
    unsigned dialect;
    int status;
    char request_id[40];
    struct buf body;
};

static void pending_free(struct pending *p)
{
    buf_done(&p->body);
    free(p);
}

/* The client left first; what was recorded stays recorded. */
static void on_closed(void *ctx, bool delivered)
{
    struct pending *p = ctx;

    (void)delivered;
    ledger_forget(&p->api->turns, p);
    pending_free(p);
}

struct pending *pending_new(struct api_request *r, int status)
{
    struct pending *p = mem_zalloc(sizeof(*p));

    p->api = r->api;
    p->x = r->x;
    p->dialect = r->dialect;
    p->status = status;
    memcpy(p->request_id, r->request_id, sizeof(p->request_id));
    exchange_watch(p->x, on_closed, p);
    return p;
}

struct buf *pending_body(struct pending *p)
{
    return &p->body;
}

void pending_durable(void *ctx)
{
    struct pending *p = ctx;

    exchange_watch(p->x, NULL, NULL);
    respond_count(p->api, p->dialect, p->status);
    exchange_reply(p->x, p->status, "application/json", buf_str(&p->body));
    pending_free(p);
}

void pending_fail(struct pending *p, const struct err *e)
{
    exchange_watch(p->x, NULL, NULL);
    respond_error_to(p->api, p->x, NULL, p->dialect, p->request_id, e);
    pending_free(p);
}
