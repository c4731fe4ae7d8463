/* POST /sessions: whether there is room, and one session or a group. The answer with all ids and
 * keys is written first, then the records; it is sent when the last record is durable
 * (durable_answer). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

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

/* Makes one session; `durable` comes for the record. */
static int create_one(struct service *a, struct str id, const struct json *options, uint64_t now_ms,
                      struct durable_answer *p, struct err *e)
{
    struct buf record = {0};
    int rc = session_create_record(a->calls.store, id, options, now_ms, &record, e);

    if (rc == 0)
        rc = ledger_write(a->calls.ledger, id, buf_str(&record),
                          (struct ledger_done){p ? durable_answer_send : NULL, p}, e);
    if (rc == 0)
        metrics_count(a->calls.page, METRIC_sessions_created, 1);
    buf_done(&record);
    return rc;
}

/* The answer to POST /sessions. */
static void write_all_created(struct service_request *r, char (*ids)[ID_TEXT_MAX],
                              const struct minted_group *g, uint64_t now_ms, struct buf *body)
{
    struct json_out o = json_out_to(body);

    if (g->list) {
        json_out_obj(&o);
        json_out_key(&o, "group");
        json_out_str(&o, g->id);
        json_out_key(&o, "sessions");
        json_out_arr(&o);
    }
    for (int64_t i = 0; i < g->count; i++)
        write_created(r, str_cstr(ids[i]), g, i, now_ms, &o);
    if (g->list) {
        json_out_end_arr(&o);
        json_out_end_obj(&o);
    }
}

/* The answer is written before the last record, whose `durable` may come at once. */
static void create_all(struct service_request *r, struct arena *a, const struct json *options,
                       const struct minted_group *g)
{
    int64_t count = g->count;
    struct durable_answer *p = durable_answer_new(r, 200);
    uint64_t now_ms = clock_wall_ms();
    char(*ids)[ID_TEXT_MAX] = mem_calloc((size_t)count, sizeof(*ids));
    struct err e = {0};
    int rc = 0;

    for (int64_t i = 0; i < count; i++)
        (void)ids_session(r->service->calls.ids, r->service->heritage->index, ids[i]);
    write_all_created(r, ids, g, now_ms, durable_answer_body(p));
    for (int64_t i = 0; i < count && rc == 0; i++)
        rc = create_one(r->service, str_cstr(ids[i]), options_of(a, options, g, i), now_ms,
                        i == count - 1 ? p : NULL, &e);
    if (rc)
        durable_answer_fail(p, &e);
    free(ids);
}

/* Every check comes before the first record, so a group is made whole or not at all, but for a
 * journal that fails on the way. */
void control_create(struct service_request *r)
{
    struct arena a = {0};
    const struct json *options = NULL;
    struct err e = {0};
    struct minted_group g = {.count = 1};

    if (control_body(r, &a, &options, &e) || session_rules_lift(&a, options, &options, &e) ||
        add_evaluation(r->service, &a, &options, &e) ||
        session_rules_nodes(options, r->service->config->max_nodes, &e) ||
        control_check_engines(r->service, options, &e) || read_group(r, options, &g, &e) ||
        service_room(r->service, g.count, &e))
        respond_error(r, NULL, &e);
    else
        create_all(r, &a, options, &g);
    arena_done(&a);
}
