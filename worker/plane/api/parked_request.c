#include "worker/plane/api/parked_request.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/api/check_inputs.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/residency/residency.h"

enum { HOLD_POLL_MS = 50 };

/* A request that waits for its session, or, if waiter.fn is NULL, for the fleet's store. */
struct parked_request {
    struct service *service;
    struct exchange *x;
    struct residency_waiter waiter;
    struct service_request held; /* asked again for its owner */
    char id[ID_TEXT_MAX];        /* text of held.id */
    bool is_call;                /* the held request is a model call */
    uint64_t until_ms;
    struct loop_timer again;
    struct body_read *body;        /* parsed body of a control request, owned */
    const struct dialect *dialect; /* dialect for errors; NULL: the control plane's form */
    char request_id[40];
};

static void parked_free(struct parked_request *p)
{
    loop_timer_stop(p->service->calls.loop, &p->again);
    inputs_drop(p->service, p->body);
    free(p);
}

/* The client left while its session was being read back. */
static void on_parked_closed(void *ctx, bool delivered)
{
    struct parked_request *p = ctx;

    (void)delivered;
    if (p->waiter.fn)
        residency_leave(&p->waiter);
    parked_free(p);
}

/* Starts the request again, because its session is back, and its key may be invalid by now.
 * Everything that the request holds is unchanged. */
static void on_back(void *ctx, const struct err *e)
{
    struct parked_request *p = ctx;
    struct exchange *x = p->x;
    struct service *a = p->service;
    struct body_read *body = p->body;
    struct err shown = {0};

    exchange_watch(x, NULL, NULL);
    if (e) {
        if (e->kind == ERR_IO || e->kind == ERR_INTERNAL)
            (void)err_set(&shown, ERR_INTERNAL, "the session cannot be read back from the journal");
        else
            shown = *e;
        respond_error_to(a, x, p->dialect, METRIC_DIALECT_CONTROL, p->request_id, &shown);
    } else {
        p->body = NULL;
    }
    parked_free(p);
    if (!e)
        dispatch_enter(a, x, body, true);
}

static struct parked_request *parked_new(struct service_request *r)
{
    struct parked_request *p = mem_zalloc(sizeof(*p));

    p->service = r->service;
    p->x = r->x;
    p->body = r->body;
    r->body = NULL;
    exchange_watch(r->x, on_parked_closed, p);
    return p;
}

/* Enters the request if the fleet's store answers, the time is over, or this worker drains. Else
 * looks again later. */
static void on_hold(struct loop_timer *t)
{
    struct parked_request *p = CONTAINER_OF(t, struct parked_request, again);
    struct service *a = p->service;
    struct exchange *x = p->x;
    struct body_read *body = p->body;
    struct err e = {0};

    if (service_check_owner(&p->held, p->is_call, &e) && e.kind == ERR_STORAGE_UNAVAILABLE &&
        !a->draining && loop_now_ms(a->calls.loop) < p->until_ms) {
        loop_timer_set(a->calls.loop, t, HOLD_POLL_MS, on_hold);
        return;
    }
    p->body = NULL;
    exchange_watch(x, NULL, NULL);
    parked_free(p);
    dispatch_enter(a, x, body, true);
}

bool parked_hold(struct service_request *r, bool control, const struct err *why)
{
    const struct config *c = r->service->config;
    uint64_t ms = (uint64_t)(control ? c->fleet_hold_ms : c->fleet_outage_ms);
    struct parked_request *p;

    if (why->kind != ERR_STORAGE_UNAVAILABLE || r->was_held || ms == 0 || r->service->draining ||
        r->id.len >= ID_TEXT_MAX)
        return false;
    p = parked_new(r);
    p->held = *r;
    p->is_call = !control;
    if (r->id.p) {
        memcpy(p->id, r->id.p, r->id.len);
        p->held.id = str_of(p->id, r->id.len);
    }
    p->until_ms = loop_now_ms(r->service->calls.loop) + ms;
    loop_timer_set(r->service->calls.loop, &p->again, HOLD_POLL_MS, on_hold);
    return true;
}

bool parked_wait_session(struct service_request *r, bool control)
{
    struct str method = exchange_method(r->x);
    bool ended = control && (str_eq_c(method, "GET") || str_eq_c(method, "DELETE") ||
                             str_eq_c(r->rest, "/finalize") || str_eq_c(r->rest, "/samples") ||
                             str_eq_c(r->rest, "/fork") || str_eq_c(r->rest, "/logprobs"));
    struct parked_request *p;

    if (!r->id_valid || residency_ready(r->service->calls.residency, r->id, ended))
        return false;
    p = parked_new(r);
    p->dialect = control ? NULL : dialect_for_path(dialect_path(r->rest));
    p->waiter.fn = on_back;
    p->waiter.ctx = p;
    memcpy(p->request_id, r->request_id, sizeof(p->request_id));
    residency_add_waiter(r->service->calls.residency, r->id, &p->waiter);
    return true;
}
