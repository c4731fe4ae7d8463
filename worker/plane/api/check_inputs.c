/* A long check runs in a task, with a lane of its own among the helpers' jobs (its request's id),
 * because no session waits for it. */
#include "worker/plane/api/check_inputs.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/cancel.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/plane/api/dispatch.h"
#include "worker/plane/api/inputs.h"
#include "worker/plane/api/routes.h"
#include "worker/plane/call/give_back.h"
#include "worker/plane/call/work.h"
#include "worker/plane/service/body_read.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

struct input_check {
    struct task *task;
    bool left;                      /* the client left; the exchange may be freed */
    _Atomic uint64_t body_hash;     /* hash for the log */
    struct service_request request; /* strings belong to the exchange */
    const struct api_route *route;
    struct body_read *read; /* owned until it is passed on */
};

static struct body_read *read_new(struct service *a)
{
    struct body_read *b = mem_zalloc(sizeof(*b));

    b->arena.sum = &a->calls.request_bytes;
    return b;
}

void inputs_drop(struct service *a, struct body_read *body)
{
    if (!body)
        return;
    call_free_later(&a->calls, &body->arena, STR("control bodies"));
    free(body);
}

static int check_limits(const struct api_route *route, int64_t max_metadata_bytes,
                        const struct json *body, struct err *e)
{
    const struct json *reward = json_get(body, "reward_info");

    if (route->inputs & (INPUT_CREATE | INPUT_FORK) &&
        session_rules_size(body, max_metadata_bytes, e) != 0)
        return -1;
    return json_is(reward, JSON_OBJECT)
               ? limit_check(LIMIT_SESSION_MEMBERS_MAX, "reward_info", reward->n, e)
               : 0;
}

/* Checks the request. A snapshot is long, and has a reader of its own (import_reading.h), so its
 * body is not kept. */
static int check_request(const struct service_request *r, const struct api_route *route,
                         struct body_read *ret, struct err *e)
{
    const struct exchange *x = r->x;
    bool kept = !(route->inputs & INPUT_IMPORT);
    int rc = inputs_check(route, exchange_query(x), exchange_body(x), &ret->arena,
                          kept ? &ret->json : NULL, e);

    if (rc == 0 && kept)
        rc = check_limits(route, r->service->config->max_metadata_bytes, ret->json, e);
    if (!kept)
        arena_done(&ret->arena);
    return rc;
}

static int check_run(void *ctx, void *tool, struct err *e)
{
    struct input_check *v = ctx;

    if (work_note_bytes(&v->body_hash, tool, exchange_body(v->request.x), e))
        return -1;
    return check_request(&v->request, v->route, v->read, e);
}

/* Passes the parsed inputs to the handler, with the request. */
static void pass_inputs(struct service_request *r, const struct api_route *route,
                        struct body_read **read)
{
    r->body = *read;
    *read = NULL;
    dispatch_handle(r, route);
}

static void on_left(void *ctx, bool delivered)
{
    struct input_check *v = ctx;

    (void)delivered;
    v->left = true;
    task_cancel(v->task);
}

/* Leaks everything, because the thread may still read it. */
static void on_lost(void *ctx)
{
    struct input_check *v = ctx;
    struct err e = {0};

    work_report_hung(v->body_hash, &e);
    exchange_strand(v->request.x);
    if (!v->left)
        respond_error(&v->request, NULL, &e);
}

MAY_PAUSE static int check_in_helper(struct input_check *v, struct err *e)
{
    struct exchange *x = v->request.x;
    struct task_work w = {.fn = check_run,
                          .ctx = v,
                          .lane = str_cstr(v->request.request_id),
                          .is_long = exchange_body(x).len > WORK_JSON_LONG};
    int rc;

    exchange_hold(x);
    exchange_watch(x, on_left, v);
    rc = task_offload(&w, e);
    if (!v->left)
        exchange_watch(x, NULL, NULL);
    exchange_unhold(x);
    return v->left ? cancel_fail(e) : rc;
}

static void run_check(void *ctx)
{
    struct input_check *v = ctx;
    struct service *service = v->request.service;
    struct err e = {0};

    v->task = task_running;
    task_on_lost(on_lost, v);
    if (check_in_helper(v, &e) == 0)
        pass_inputs(&v->request, v->route, &v->read);
    else if (e.kind != ERR_CANCELLED)
        respond_error(&v->request, NULL, &e);
    inputs_drop(service, v->read);
    free(v);
}

static void check_here(struct service_request *r, const struct api_route *route)
{
    struct body_read *read = read_new(r->service);
    struct err e = {0};

    if (check_request(r, route, read, &e))
        respond_error(r, NULL, &e);
    else
        pass_inputs(r, route, &read);
    inputs_drop(r->service, read);
}

/* Checks the body's size for content that the loop records and returns in one piece. Exempt are a
 * snapshot, which is read and written in steps, and a group's entry, which the dispatcher would
 * lose: it consists of many members' data, each of which was checked when it came. */
static int check_size(const struct service_request *r, const struct api_route *route, struct err *e)
{
    size_t most = (size_t)r->service->config->max_control_body_bytes,
           n = exchange_closed_body(r->x).len;

    if (most == 0 || n <= most || (route->inputs & (INPUT_IMPORT | INPUT_GROUP_RESULT)))
        return 0;
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "the body has %zu bytes, of which --max-control-body-bytes allows %zu", n, most);
}

void check_inputs(struct service_request *r, const struct api_route *route)
{
    struct input_check *v;
    struct err e = {0};

    if (check_size(r, route, &e) != 0) {
        respond_error(r, NULL, &e);
        return;
    }
    if (exchange_body(r->x).len <= WORK_JSON_MAX) {
        check_here(r, route);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->request = *r;
    v->route = route;
    v->read = read_new(r->service);
    (void)task_start(r->service->calls.tasks, str_cstr(r->request_id), run_check, v);
}
