/* POST /sessions: checks whether there is space, and makes one session or a group. The answer with
 * all ids and keys is written together with the records, and sent when all records are durable.
 *
 * A group is never left partial: the task is shielded from its first record on, and a worker that
 * drains waits for it. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/give_back.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"

/* Sessions that are made together as samples of one task. */
struct minted_group {
    int64_t count;
    bool list;     /* `count` was given, so the answer is a list */
    struct str id; /* group id from the trainer, or a new one; absent: none */
    char text[ID_TEXT_MAX];
};

/* Replaces a member or appends it. The object must have space. */
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

/* Applies an evaluation's sampling_params on top of the process's defaults for evaluations, member
 * by member. */
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

/* Returns the options of session n: those given, and its place in the group. */
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

/* Reads the group. `count` makes one, whose id the trainer may have named. */
static int read_group(struct service_request *r, const struct json *options,
                      struct minted_group *ret, struct err *e)
{
    static const char *const ours[] = {"rollout", "group_size"};

    /* inputs.def has checked the value */
    (void)json_to_i64(json_get(options, "count"), &ret->count);
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

/* Writes the group of a session. Writes nothing for a single session. */
static void write_group(const struct minted_group *g, int64_t n, struct json_out *o)
{
    if (!g->list)
        return;
    json_out_member_str(o, "group", g->id);
    json_out_member_i64(o, "rollout", n);
    json_out_member_i64(o, "group_size", g->count);
}

static void write_created(struct service_request *r, struct str id, const struct minted_group *g,
                          int64_t n, uint64_t now_ms, struct json_out *o)
{
    json_out_obj(o);
    control_put_created(r, id, now_ms, o);
    write_group(g, n, o);
    json_out_end_obj(o);
}

struct creating {
    struct answering *answer;
    struct arena arena; /* memory of the options */
    const struct json *options;
    struct minted_group group;
    uint64_t now_ms;
    int64_t made;
    struct str *ids;             /* of those made */
    struct json_out out;         /* writes to the answer */
    struct durable_wait durable; /* of all records */
};

static void begin_answer(struct creating *c)
{
    c->out = json_out_to(&c->answer->out);
    if (!c->group.list)
        return;
    json_out_obj(&c->out);
    json_out_member_str(&c->out, "group", c->group.id);
    json_out_member_arr(&c->out, "sessions");
}

static void end_answer(struct creating *c)
{
    if (!c->group.list)
        return;
    json_out_end_arr(&c->out);
    json_out_end_obj(&c->out);
}

/* Makes the session of the record. Before the first record other requests may have used up the
 * space, and another node may own the place. After it the group is completed even if the client
 * leaves. */
static int write_record(struct creating *c, struct str id, struct str record, struct err *e)
{
    struct service *s = c->answer->request.service;

    if (c->made == 0 &&
        (service_room(s, c->group.count, e) || ledger_check_owner(s->calls.ledger, id, e)))
        return -1;
    if (ledger_write(s->calls.ledger, id, record, durable_wait_done(&c->durable), e))
        return -1;
    c->ids[c->made] = arena_str(&c->arena, id);
    if (c->made++ == 0)
        task_shield();
    metrics_count(s->calls.page, METRIC_sessions_created, 1);
    return 0;
}

/* Makes the next session. Encoding and writing the record both take a while if the metadata is
 * long. */
MAY_PAUSE static int create_next(struct creating *c, struct err *e)
{
    struct service_request *r = &c->answer->request;
    const struct service *s = r->service;
    char text[ID_TEXT_MAX];
    struct str id = str_of(text, ids_session(s->calls.ids, s->heritage->index, text));
    struct buf record = {0};
    int rc = session_create_record(s->calls.store, id,
                                   options_of(&c->arena, c->options, &c->group, c->made), c->now_ms,
                                   &record, e);

    if (rc == 0)
        rc = task_pause(e);
    if (rc == 0) {
        write_created(r, id, &c->group, c->made, c->now_ms, &c->out);
        rc = write_record(c, id, buf_str(&record), e);
    }
    buf_done(&record);
    return rc;
}

/* Checks everything before the first record, so that a group is made completely or not at all,
 * unless the journal fails on the way. */
static int check_options(struct creating *c, struct err *e)
{
    struct service_request *r = &c->answer->request;
    struct arena *a = &c->arena;

    c->group.count = 1;
    if (session_rules_lift(a, c->options, &c->options, e) ||
        add_evaluation(r->service, a, &c->options, e) ||
        session_rules_nodes(c->options, r->service->config->max_nodes, e) ||
        control_check_engines(r->service, c->options, e) || read_group(r, c->options, &c->group, e))
        return -1;
    return service_room(r->service, c->group.count, e);
}

/* Deletes what was made: the client gets an error, and nobody has the keys. */
MAY_PAUSE static void delete_made(const struct creating *c)
{
    struct service *s = c->answer->request.service;
    struct err e = {0};

    for (int64_t i = 0; i < c->made; i++) {
        bool ended;
        struct session *made = session_find(s->calls.store, c->ids[i], &ended);

        if (made &&
            control_end(s, made, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
            log_warn(&(struct log_scope){.session = c->ids[i]},
                     "a session that was not answered in time stays", LOG_T("error", e.text));
        if (task_pause(NULL))
            return;
    }
}

MAY_PAUSE static int create_all(struct creating *c, struct err *e)
{
    if (check_options(c, e))
        return -1;
    c->ids = arena_calloc(&c->arena, (size_t)c->group.count, sizeof(*c->ids));
    begin_answer(c);
    while (c->made < c->group.count)
        if (create_next(c, e) || task_pause(e))
            return -1;
    end_answer(c);
    if (await_durable(c->answer->request.service, &c->durable, e) == 0)
        return 0;
    if (e->kind != ERR_CANCELLED)
        delete_made(c);
    return -1;
}

static void create_sessions(struct answering *a, void *ctx)
{
    struct creating *c = ctx;
    struct err e = {0};
    int rc;

    c->answer = a;
    rc = control_create_elsewhere(a, c->options, &e);
    if (rc == 1 || (rc == 0 && create_all(c, &e) == 0))
        answering_end(a);
    else
        answering_fail(a, "", &e);
    if (a->left && c->made > 0 && c->made < c->group.count)
        log_warn(NULL, "a group whose client left stays without its rest",
                 LOG_S("group", c->group.id), LOG_I("sessions", c->made),
                 LOG_I("asked", c->group.count), LOG_T("error", e.text));
    if (c->durable.due > 0)
        ledger_forget(a->request.service->calls.ledger, &c->durable);
    call_free_later(&a->request.service->calls, &c->arena, str_cstr(a->request.request_id));
    free(c);
}

void control_create(struct service_request *r)
{
    struct creating *c = mem_zalloc(sizeof(*c));

    c->arena.sum = &r->service->calls.request_bytes;
    c->options = control_take_body(r, &c->arena);
    c->now_ms = clock_wall_ms();
    answering_start(r, create_sessions, c);
}
