/*
 * POST /sessions/{id}/fork: a new session with copies of the records that led to one answer, and
 * links to the session's pictures. The answer with its id and keys is sent when the last record is
 * durable. A copy that was not written to its end (the journal refused, or a crash) is hidden, and
 * deleted by the next sweep.
 */
#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/codec/json_build.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/dialect/responses.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

struct forking {
    struct service *service;
    struct session_fork fork;
    char id[ID_TEXT_MAX];
};

static int write_record(void *ctx, struct str record, struct err *e)
{
    struct forking *f = ctx;

    return ledger_write(f->service->calls.ledger, f->fork.id, record, (struct ledger_done){0}, e);
}

/* The options of the session, with those of the request in their place, and how many records make
 * the copy. A fork is its caller's: the dispatcher does not end it with its attempt. */
static const struct json *options_of(struct arena *a, const struct session *s,
                                     const struct json *body, size_t n_copies)
{
    static const char *const ours[] = {"labels", "metadata", "sampling_params"};
    struct buf text = {0};
    const struct json *was = NULL;
    struct json *o = arena_alloc(a, sizeof(*o));

    session_write_options(s, &text);
    *o = json_empty(JSON_OBJECT);
    if (json_parse(a, arena_str(a, buf_str(&text)), &was, NULL) == 0) {
        for (uint32_t i = 0; i < was->n; i++) {
            struct str name = json_string(&was->members[i].key);
            const struct json *given = NULL;

            for (size_t k = 0; k < ARRAY_LEN(ours); k++)
                given = str_eq_c(name, ours[k]) ? json_get(body, ours[k]) : given;
            if (json_is_null(given) && !str_eq_c(name, "dispatched"))
                json_put(a, o, arena_cstr(a, name), was->members[i].value);
        }
    }
    for (size_t k = 0; k < ARRAY_LEN(ours); k++) {
        if (!json_is_null(json_get(body, ours[k])))
            json_put(a, o, ours[k], *json_get(body, ours[k]));
    }
    json_put(a, o, "copies", json_make_i64(a, (int64_t)n_copies));
    buf_done(&text);
    return o;
}

static void write_answer(struct service_request *r, const struct forking *f, struct str from,
                         struct buf *body)
{
    struct json_out o = json_out_to(body);

    json_out_obj(&o);
    control_put_created(r, f->fork.id, f->fork.now_ms, &o);
    json_out_key(&o, "forked_from");
    json_out_str(&o, from);
    json_out_end_obj(&o);
}

/* The fork's beginning; what the request says is checked by it. */
static int write_beginning(struct forking *f, struct arena *a, const struct session *s,
                           const struct json *body, size_t n_copies, struct err *e)
{
    struct buf record = {0};
    int rc = session_create_record(f->service->calls.store, f->fork.id,
                                   options_of(a, s, body, n_copies), f->fork.now_ms, &record, e);

    if (rc == 0)
        rc = write_record(f, buf_str(&record), e);
    buf_done(&record);
    return rc;
}

/* What is wrong is found before the first record: the copies are made in memory, then written. */
struct copies {
    struct arena *arena;
    VEC(struct str) records;
};

static int keep_copy(void *ctx, struct str record, struct err *e)
{
    struct copies *c = ctx;

    (void)e;
    *vec_push(&c->records) = arena_str(c->arena, record);
    return 0;
}

static int write_all(struct forking *f, struct arena *a, struct session *s, const struct json *body,
                     struct durable_answer *p, struct err *e)
{
    struct copies c = {.arena = a};
    int rc = session_fork_records(s, &f->fork, keep_copy, &c, e);

    if (rc == 0)
        rc = media_store_lend(f->service->calls.media, session_id(s), f->fork.id, e);
    if (rc == 0)
        rc = write_beginning(f, a, s, body, c.records.n, e);
    for (size_t i = 0; rc == 0 && i + 1 < c.records.n; i++)
        rc = write_record(f, c.records.at[i], e);
    if (rc == 0)
        rc = ledger_write(f->service->calls.ledger, f->fork.id, vec_last(&c.records),
                          (struct ledger_done){durable_answer_send, p}, e);
    vec_done(&c.records);
    return rc;
}

void control_fork(struct service_request *r)
{
    struct forking f = {.service = r->service};
    struct arena a = {0};
    struct err e = {0};
    const struct json *body = NULL;
    struct session *s = control_find(r, true, &e);
    struct durable_answer *p;

    if (!s || control_body(r, &a, &body, &e) || service_room(r->service, 1, &e)) {
        respond_error(r, NULL, &e);
        goto out;
    }
    f.fork.id = str_of(f.id, ids_session(r->service->calls.ids, r->service->heritage->index, f.id));
    f.fork.response_id = json_string(json_get(body, "response_id"));
    if (f.fork.response_id.p)
        f.fork.response_id = response_bare_id(f.fork.response_id);
    f.fork.train_prefix = json_is_true(json_get(body, "train_prefix"));
    f.fork.now_ms = clock_wall_ms();
    p = durable_answer_new(r, 200);
    write_answer(r, &f, session_id(s), durable_answer_body(p));
    if (write_all(&f, &a, s, body, p, &e))
        durable_answer_fail(p, &e);
    else
        metrics_count(r->service->calls.page, METRIC_sessions_created, 1);
out:
    arena_done(&a);
}
