/* A long check has a place of its own among the helpers' jobs (its request's id), for no session
 * waits for it. */
#include "worker/api/check_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/json_long.h"
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

/* Of a body that may pass one of session_rules_size's limits: a member has four bytes at least. */
enum { MEASURED_BYTES = MIN_OF(4 * SESSION_MEMBERS_MAX, SESSION_OPTIONS_MAX) };

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

/* By whose text trainers group rows, or know the agent: it must be at hand. */
static int check_names(const struct json *metadata, struct err *e)
{
    static const char *const names[] = {"uid", "env_name", "agent_name", "agent_version"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct json *v = json_get(metadata, names[i]);

        if (v && v->kind == JSON_RAW)
            return err_field(e, "metadata", "metadata.%s has more than %d bytes, which no name has",
                             names[i], JSON_LONG_BYTES);
    }
    return 0;
}

/* The loop looks at each member of these, and copies the texts of the long ones (json_long.h). */
static int keep_long(struct arena *a, struct json_member *m, struct err *e)
{
    struct str name = json_string(&m->key);
    bool reward = str_eq_c(name, "reward_info"), metadata = str_eq_c(name, "metadata");

    if (m->value.kind != JSON_OBJECT || (!reward && !metadata))
        return 0;
    if (reward && m->value.n > SESSION_MEMBERS_MAX)
        return err_field(e, "reward_info", "reward_info has %u members; at most %d are allowed",
                         m->value.n, SESSION_MEMBERS_MAX);
    m->value = *json_keep_long(a, &m->value);
    return metadata ? check_names(&m->value, e) : 0;
}

/* The body's own object, whose members may be replaced before anybody else sees it. */
static int keep_body(const struct api_route *route, struct str text, struct body_read *b,
                     struct err *e)
{
    struct json *body;

    if (!b->json || b->json->n == 0 || text.len <= JSON_LONG_BYTES)
        return 0;
    if (route->inputs & (INPUT_CREATE | INPUT_FORK) && text.len > MEASURED_BYTES &&
        session_rules_size(b->json, e) != 0)
        return -1;
    body = ARENA_NEW(&b->arena, struct json);
    *body = *b->json;
    body->members = arena_alloc(&b->arena, body->n * sizeof(*body->members));
    memcpy(body->members, b->json->members, body->n * sizeof(*body->members));
    for (uint32_t i = 0; i < body->n; i++)
        if (keep_long(&b->arena, &body->members[i], e) != 0)
            return -1;
    b->json = body;
    return 0;
}

/* A snapshot is long, and read by its own reader (import_reading.h): it is not kept. */
static int check(const struct exchange *x, const struct api_route *route, struct body_read *ret,
                 struct err *e)
{
    bool kept = !(route->inputs & INPUT_IMPORT);
    int rc = inputs_check(route, exchange_query(x), exchange_body(x), &ret->arena,
                          kept ? &ret->json : NULL, e);

    if (rc == 0 && kept)
        rc = keep_body(route, exchange_body(x), ret, e);
    if (!kept)
        arena_done(&ret->arena);
    return rc;
}

static int check_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct input_check *v = CONTAINER_OF(w, struct input_check, work);

    if (work_note_body(w, tools, exchange_body(v->request.x), NULL, NULL, e))
        return -1;
    return check(v->request.x, v->route, v->read, e);
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

    if (check(r->x, route, read, &e))
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
