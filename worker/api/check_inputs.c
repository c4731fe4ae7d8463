/* A long check has a place of its own among the helpers' jobs (its request's id), for no session
 * waits for it. */
#include "worker/api/check_inputs.h"

#include <stdlib.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/proc/config.h"
#include "common/serve/exchange.h"
#include "worker/api/inputs.h"
#include "worker/api/routes.h"
#include "worker/call/give_back.h"
#include "worker/call/work.h"
#include "worker/service/body_read.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"

struct input_check {
    struct long_work work;
    struct service_request request; /* strings are the exchange's */
    const struct api_route *route;
    inputs_passed_fn passed;
    struct body_read *read; /* own, until it is handed on */
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
    call_give_back(&a->calls, &body->arena, STR("control bodies"));
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

/* A snapshot is long, and read by its own reader (import_reading.h): it is not kept. */
static int check(const struct service_request *r, const struct api_route *route,
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

static int check_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct input_check *v = CONTAINER_OF(w, struct input_check, work);

    if (work_note_body(w, tools, exchange_body(v->request.x), NULL, NULL, e))
        return -1;
    return check(&v->request, v->route, v->read, e);
}

static void free_check(struct input_check *v)
{
    inputs_drop(v->request.service, v->read);
    free(v);
}

/* What was read goes to who is called, with the request. */
static void pass(struct service_request *r, const struct api_route *route, inputs_passed_fn passed,
                 struct body_read **read)
{
    r->body = *read;
    *read = NULL;
    passed(r, route);
}

static void end(struct input_check *v, const struct err *e)
{
    if (e)
        respond_error(&v->request, NULL, e);
    else
        pass(&v->request, v->route, v->passed, &v->read);
    free_check(v);
}

static void on_checked(struct long_work *w, const struct err *e)
{
    struct input_check *v = CONTAINER_OF(w, struct input_check, work);

    if (w->stuck) /* the helper may still read all of it */
        respond_error(&v->request, NULL, e);
    else
        end(v, e);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *w)
{
    free_check(CONTAINER_OF(w, struct input_check, work));
}

static void check_here(struct service_request *r, const struct api_route *route,
                       inputs_passed_fn passed)
{
    struct body_read *read = read_new(r->service);
    struct err e = {0};

    if (check(r, route, read, &e))
        respond_error(r, NULL, &e);
    else
        pass(r, route, passed, &read);
    inputs_drop(r->service, read);
}

/* What the loop records and tells again in one piece. A snapshot is read and written in parts. A
 * group's entry is the dispatcher's, which would lose it: it is put together of many members', each
 * of which was held to limits when it came. */
static int check_size(const struct service_request *r, const struct api_route *route, struct err *e)
{
    size_t most = (size_t)r->service->config->max_control_body_bytes,
           n = exchange_closed_body(r->x).len;

    if (most == 0 || n <= most || (route->inputs & (INPUT_IMPORT | INPUT_GROUP_RESULT)))
        return 0;
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "the body has %zu bytes, of which --max-control-body-bytes allows %zu", n, most);
}

void check_inputs(struct service_request *r, const struct api_route *route, inputs_passed_fn passed)
{
    struct call_env *env = &r->service->calls;
    struct input_check *v;
    enum work_state state;
    struct err e = {0};

    if (check_size(r, route, &e) != 0) {
        respond_error(r, NULL, &e);
        return;
    }
    if (exchange_body(r->x).len <= WORK_JSON_MAX) {
        check_here(r, route, passed);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->request = *r;
    v->route = route;
    v->passed = passed;
    v->read = read_new(r->service);
    v->work.run = check_run;
    v->work.done = on_checked;
    v->work.drop = on_dropped;
    v->work.exchange = r->x;
    v->work.is_long = exchange_body(r->x).len > WORK_JSON_LONG;
    state = work_begin(env, &v->work, str_cstr(v->request.request_id), false, &e);
    if (state != WORK_HELPED)
        end(v, state == WORK_FAILED ? &e : NULL);
}
