/* POST /sessions: whether there is room, and one session or a group. The answer with all ids and
 * keys is written beside the records; it is sent when the last record is durable
 * (durable_answer).
 *
 *   control_create -> create_slice: create_next twice for each session, which makes its record and
 *                      |             writes it -> create_last, and the answer
 *                      '-> more: the exchange is held, another slice in a later turn
 *                           '-> the client leaves: the same without an answer, or nothing where
 *                               nothing was written
 *                           '-> the worker ends: groups_finish, the rest at once
 *
 * A group is never left partial: a held exchange keeps a worker that drains from ending. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/call/give_back.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

enum { SLICE_US = 250 };

/* Sessions that are made together: samples of one task. */
struct minted_group {
    int64_t count;
    bool list;     /* `count` was given: they are a group, and the answer is a list */
    struct str id; /* the trainer's, or minted; absent: none */
    char text[ID_TEXT_MAX];
};

/* Replaces a member, or appends it; the object has room. */
static void set_member(struct json *object, const char *key, struct json value)
{
    for (uint32_t i = 0; i < object->n; i++)
        if (str_eq_c(json_string(&object->members[i].key), key)) {
            object->members[i].value = value;
            return;
        }
    object->members[object->n].key = json_make_string(str_cstr(key));
    object->members[object->n++].value = value;
}

/* An evaluation's sampling_params stand above the process's for evaluations, member by member. */
static int add_evaluation(struct service *s, struct arena *a, const struct json **options,
                          struct err *e)
{
    const char *text = s->config->evaluation_sampling;
    const struct json *given = json_get(*options, "sampling_params"), *defaults = NULL;
    struct json *all, *o;

    if (!json_is_true(json_get(*options, "evaluation")) || !text)
        return 0;
    if (json_parse(a, str_cstr(text), &defaults, e) || !json_is(defaults, JSON_OBJECT))
        return err_set(e, ERR_INTERNAL, "--evaluation-sampling is no JSON object");
    all = arena_alloc(a, sizeof(*all));
    *all = *defaults;
    all->members =
        arena_calloc(a, defaults->n + (size_t)(given ? given->n : 0) + 1, sizeof(*all->members));
    if (defaults->n)
        memcpy(all->members, defaults->members, defaults->n * sizeof(*all->members));
    for (uint32_t i = 0; json_is(given, JSON_OBJECT) && i < given->n; i++)
        set_member(all, arena_cstr(a, json_string(&given->members[i].key)),
                   given->members[i].value);
    o = arena_alloc(a, sizeof(*o));
    *o = **options;
    o->members = arena_alloc(a, ((*options)->n + (size_t)1) * sizeof(*o->members));
    memcpy(o->members, (*options)->members, (*options)->n * sizeof(*o->members));
    set_member(o, "sampling_params", *all);
    *options = o;
    return 0;
}

/* Session n's options: those given, and where it stands in its group. */
static const struct json *options_of(struct arena *a, const struct json *given,
                                     const struct minted_group *g, int64_t n)
{
    struct json *o;

    if (!g->list)
        return given;
    o = arena_alloc(a, sizeof(*o));
    *o = *given;
    o->members = arena_alloc(a, (given->n + (size_t)3) * sizeof(*o->members));
    memcpy(o->members, given->members, given->n * sizeof(*o->members));
    set_member(o, "group", json_make_string(g->id));
    set_member(o, "rollout", json_make_i64(a, n));
    set_member(o, "group_size", json_make_i64(a, g->count));
    return o;
}

/* `count` makes a group, whose id the trainer may have named. */
static int read_group(struct service_request *r, const struct json *options,
                      struct minted_group *ret, struct err *e)
{
    static const char *const ours[] = {"rollout", "group_size"};

    (void)json_to_i64(json_get(options, "count"), &ret->count); /* checked by inputs.def */
    ret->list = !json_is_null(json_get(options, "count"));
    ret->id = json_string(json_get(options, "group"));
    for (size_t i = 0; ret->list && i < ARRAY_LEN(ours); i++)
        if (!json_is_null(json_get(options, ours[i])))
            return err_field(e, ours[i], "%s cannot be given beside count, which numbers them",
                             ours[i]);
    if (!ret->list || !json_is_null(json_get(options, "group")))
        return 0;
    ret->id = str_of(ret->text,
                     ids_session(r->service->calls.ids, r->service->heritage->index, ret->text));
    ret->text[0] = 'g';
    return 0;
}

/* Which group a session belongs to; nothing for a single one. */
static void write_group(const struct minted_group *g, int64_t n, struct json_out *o)
{
    if (!g->list)
        return;
    json_out_key(o, "group");
    json_out_str(o, g->id);
    json_out_key(o, "rollout");
    json_out_i64(o, n);
    json_out_key(o, "group_size");
    json_out_i64(o, g->count);
}

static void write_created(struct service_request *r, struct str id, const struct minted_group *g,
                          int64_t n, uint64_t now_ms, struct json_out *o)
{
    json_out_obj(o);
    control_put_created(r, id, now_ms, o);
    write_group(g, n, o);
    json_out_end_obj(o);
}

/* Sessions on their way. Those of a long group, and one of long metadata, are made in slices, so
 * that others have their turns between; the exchange is held meanwhile, so that a worker that
 * drains waits for the last one. */
struct creating {
    struct service_request request; /* strings are the exchange's */
    struct arena arena;             /* of the options */
    const struct json *options;
    struct minted_group group;
    uint64_t now_ms;
    int64_t made;
    char id[ID_TEXT_MAX]; /* of the next session, and */
    struct buf record;    /* that it is made of; empty before it is written */
    bool left;            /* the client has: nobody is answered */
    struct buf answer;
    struct json_out out; /* to the answer */
    struct loop_task later;
    struct list_item item; /* of service->groups, while the exchange is held */
};

static void hold_exchange(struct creating *c)
{
    list_append(&c->request.service->groups, &c->item);
    exchange_hold(c->request.x);
}

/* Before an answer, and at the end. */
static void let_exchange(struct creating *c)
{
    if (!list_holds(&c->item))
        return;
    list_remove(&c->item);
    exchange_let(c->request.x);
}

static void creating_free(struct creating *c)
{
    loop_task_cancel(c->request.service->calls.loop, &c->later);
    let_exchange(c);
    buf_done(&c->answer);
    buf_done(&c->record);
    call_give_back(&c->request.service->calls, &c->arena, str_cstr(c->request.request_id));
    free(c);
}

/* The next session's id, and the record that makes it. */
static int write_record(struct creating *c, struct err *e)
{
    const struct service *s = c->request.service;
    struct str id = str_of(c->id, ids_session(s->calls.ids, s->heritage->index, c->id));

    return session_create_record(s->calls.store, id,
                                 options_of(&c->arena, c->options, &c->group, c->made), c->now_ms,
                                 &c->record, e);
}

/* Makes the session of the record; `done` comes for that. */
static int create_one(struct creating *c, struct ledger_done done, struct err *e)
{
    struct call_env *env = &c->request.service->calls;
    int rc = ledger_write(env->ledger, str_cstr(c->id), buf_str(&c->record), done, e);

    buf_done(&c->record);
    if (rc)
        return rc;
    metrics_count(env->page, METRIC_sessions_created, 1);
    c->made++;
    return 0;
}

static void begin_answer(struct creating *c)
{
    c->out = json_out_to(&c->answer);
    if (!c->group.list)
        return;
    json_out_obj(&c->out);
    json_out_key(&c->out, "group");
    json_out_str(&c->out, c->group.id);
    json_out_key(&c->out, "sessions");
    json_out_arr(&c->out);
}

static void end_answer(struct creating *c)
{
    if (!c->group.list)
        return;
    json_out_end_arr(&c->out);
    json_out_end_obj(&c->out);
}

/* The answer goes out behind the last record, whose end may come at once. */
static void create_last(struct creating *c)
{
    struct durable_answer *p = durable_answer_new(&c->request, 200);
    struct err e = {0};

    end_answer(c);
    *durable_answer_body(p) = c->answer;
    c->answer = (struct buf){0};
    let_exchange(c);
    if (create_one(c, (struct ledger_done){durable_answer_send, p}, &e))
        durable_answer_fail(p, &e);
}

/* The journal failed on the way. */
static void create_fail(struct creating *c, const struct err *e)
{
    struct service_request *r = &c->request;

    if (c->left) {
        log_warn(NULL, "a group whose client left stays without its rest",
                 LOG_S("group", c->group.id), LOG_I("sessions", c->made),
                 LOG_I("asked", c->group.count), LOG_T("error", e->text));
        return;
    }
    let_exchange(c);
    exchange_watch(r->x, NULL, NULL);
    respond_error(r, NULL, e);
}

/* A step of the next session: its record is made, or written, and the session told of if somebody
 * listens. Both take a while where its metadata is long. 1: it was the last, or it failed, and the
 * request is answered. */
static int create_next(struct creating *c)
{
    bool last = c->made + 1 == c->group.count;
    struct err e = {0};

    if (c->record.len == 0) {
        if (write_record(c, &e) == 0)
            return 0;
        create_fail(c, &e);
        return 1;
    }
    if (!c->left)
        write_created(&c->request, str_cstr(c->id), &c->group, c->made, c->now_ms, &c->out);
    if (last && !c->left) {
        create_last(c);
        return 1;
    }
    if (create_one(c, (struct ledger_done){0}, &e) != 0) {
        create_fail(c, &e);
        return 1;
    }
    return last;
}

/* The client left between two slices: the next ones make what is missing of the group, if any of it
 * was made. */
static void on_left(void *ctx, bool delivered)
{
    struct creating *c = ctx;

    (void)delivered;
    c->left = true;
}

/* Nothing was made, and nobody asks for it any more. */
static bool is_dropped(const struct creating *c)
{
    return c->left && c->made == 0;
}

static void create_slice(struct loop_task *t)
{
    struct creating *c = CONTAINER_OF(t, struct creating, later);
    uint64_t end_us = clock_us() + SLICE_US;
    struct err e = {0};
    int rc = is_dropped(c);

    /* Others may have been made since it was looked at, or the worker may end: nothing of it is
     * made yet. */
    if (rc == 0 && c->made == 0 && list_holds(&c->item) &&
        service_room(c->request.service, c->group.count, &e)) {
        create_fail(c, &e);
        rc = 1;
    }
    while (rc == 0) {
        rc = create_next(c);
        if (clock_us() >= end_us)
            break;
    }
    if (rc) {
        creating_free(c);
        return;
    }
    if (!list_holds(&c->item))
        hold_exchange(c);
    loop_task_post(c->request.service->calls.loop, t, create_slice);
}

void groups_finish(struct service *a)
{
    struct creating *c, *next;

    LIST_EACH_SAFE(&a->groups, c, next, struct creating, item) {
        while (!is_dropped(c) && create_next(c) == 0) {
        }
        creating_free(c);
    }
}

/* Every check comes before the first record, so a group is made whole or not at all, but for a
 * journal that fails on the way. */
static int check(struct creating *c, struct err *e)
{
    struct service_request *r = &c->request;
    struct arena *a = &c->arena;

    c->group.count = 1;
    c->options = control_take_body(r, a);
    if (session_rules_lift(a, c->options, &c->options, e) ||
        add_evaluation(r->service, a, &c->options, e) ||
        session_rules_nodes(c->options, r->service->config->max_nodes, e) ||
        control_check_engines(r->service, c->options, e) || read_group(r, c->options, &c->group, e))
        return -1;
    return service_room(r->service, c->group.count, e);
}

void control_create(struct service_request *r)
{
    struct creating *c = mem_zalloc(sizeof(*c));
    struct err e = {0};

    c->request = *r;
    c->arena.sum = &r->service->calls.request_bytes;
    if (check(c, &e) != 0) {
        respond_error(r, NULL, &e);
        creating_free(c);
        return;
    }
    begin_answer(c);
    c->now_ms = clock_wall_ms();
    exchange_watch(r->x, on_left, c);
    create_slice(&c->later);
}
