/*
 * POST /sessions/abort and /sessions/finalize: end all sessions with certain labels. This worker
 * ends its own, one after the other, and asks the others of all nodes to do the same. The answer is
 * sent when every record is durable, and counts all sessions. A session whose row is not known is
 * read back first. An order that was begun is carried out even if the client leaves.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/session_walk.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"

struct bulk_order {
    struct answering *answer;
    enum session_end how;
    struct arena arena;
    const struct json *labels, *detail;
    struct session_walk walk;
    uint64_t newest;  /* newest serial at the begin; sessions made later are left alone */
    size_t undurable; /* number of records that are not durable yet */
    struct err why;   /* why a record will not be durable in time */
    struct sibling_round *round;
    struct waiter changed;           /* woken when a record is durable or a sibling has answered */
    size_t ended, failed;            /* number of sessions */
    struct siblings_missing missing; /* its names are in the arena */
};

static struct service *service_of(const struct bulk_order *b)
{
    return b->answer->request.service;
}

/* --- the other workers --- */

static size_t count_of(const struct json *v, const char *name)
{
    int64_t n = 0;

    return json_to_i64(json_get(v, name), &n) == 0 && n > 0 ? (size_t)n : 0;
}

static void on_obeyed(void *ctx, struct str body)
{
    struct bulk_order *b = ctx;
    struct arena a = {0};
    const struct json *v = NULL;

    if (json_parse(&a, body, &v, NULL) == 0) {
        b->ended += count_of(v, "ended");
        b->failed += count_of(v, "failed");
    }
    arena_done(&a);
}

static void on_round(void *ctx, const struct siblings_missing *missing)
{
    struct bulk_order *b = ctx;

    b->round = NULL;
    b->missing = *missing;
    b->missing.names = arena_str(&b->arena, missing->names);
    waiter_wake(&b->changed);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

/* --- this worker's own sessions --- */

static bool has_labels(const struct bulk_order *b, struct str row)
{
    struct arena a = {0};
    const struct json *v = session_row_head(&a, row);
    bool has = v != NULL;

    for (uint32_t i = 0; has && i < b->labels->n; i++) {
        const struct json_member *m = &b->labels->members[i];
        struct str want = json_text(&m->value);
        struct str got = json_text(json_get_str(json_get(v, "labels"), json_string(&m->key)));

        has = got.p && str_eq(got, want);
    }
    arena_done(&a);
    return has;
}

static void on_durable(void *ctx)
{
    struct bulk_order *b = ctx;

    b->undurable--;
    waiter_wake(&b->changed);
}

/* The session has ended here, and nobody may rely on that yet. */
static void on_undurable(void *ctx, const struct err *e)
{
    struct bulk_order *b = ctx;

    b->why = *e;
    on_durable(b);
}

static void end_session(struct bulk_order *b, struct session *s)
{
    struct ledger_done done = {on_durable, b, on_undurable};
    struct err e = {0};
    int rc;

    b->undurable++; /* counted first, because `done` may be called at once */
    rc = b->how == SESSION_END_ABORT ? control_end(service_of(b), s, b->how, b->detail, done, &e)
                                     : control_close(service_of(b), s, b->how, NULL, done, &e);
    if (rc == 0) {
        b->ended++;
        return;
    }
    b->undurable--;
    b->failed++;
    log_warn(NULL, "a session with these labels was not ended", LOG_T("error", e.text));
}

static bool has_ended(const struct session *s)
{
    return session_phase(s) == SESSION_FINALIZED || session_phase(s) == SESSION_ABORTED;
}

/* Reports, before the session is read back, whether it may have the labels. */
static bool may_have_labels(const struct bulk_order *b, const struct session *s)
{
    for (uint32_t i = 0; i < b->labels->n; i++)
        if (!session_may_have_label(s, json_string(&b->labels->members[i].key)))
            return false;
    return true;
}

/* Ends the entered session if it has the labels. */
MAY_PAUSE static int end_entered(struct bulk_order *b, struct session *s, struct buf *row,
                                 struct err *e)
{
    if (session_walk_row(&b->walk, service_of(b), s, row, e))
        return -1;
    if (row->len == 0) {
        b->failed += e->kind != ERR_NONE;
        *e = (struct err){0};
    }
    s = session_walk_find(&b->walk, service_of(b)->calls.store);
    if (!s || has_ended(s) || !has_labels(b, buf_str(row))) {
        session_walk_pass(&b->walk);
        return 0;
    }
    if (b->how == SESSION_END_ABORT)
        session_walk_leave(&b->walk);
    else
        session_walk_pass(&b->walk);
    end_session(b, s);
    return 0;
}

/* Ends all of this worker's own sessions. */
MAY_PAUSE static int end_own(struct bulk_order *b, struct err *e)
{
    struct session_store *st = service_of(b)->calls.store;
    struct buf row = {0};
    struct session *s;
    int rc = 0;

    while (rc == 0 && (s = session_walk_next(&b->walk, st)) && session_serial(s) <= b->newest) {
        session_walk_enter(&b->walk, s);
        if (!has_ended(s) && !session_copying(s) && may_have_labels(b, s))
            rc = end_entered(b, s, &row, e);
        else
            session_walk_pass(&b->walk);
        if (rc == 0)
            rc = task_pause(e);
    }
    buf_done(&row);
    return rc;
}

static uint64_t newest_serial(struct session_store *st)
{
    uint64_t newest = 0;

    for (struct session *s = session_next(st, NULL); s; s = session_next(st, s))
        newest = MAX_OF(newest, session_serial(s));
    return newest;
}

static void ask_others(struct bulk_order *b, struct str body)
{
    const struct exchange *x = b->answer->request.x;
    struct sibling_question q = {
        .method = "POST", .path = exchange_path(x), .body = body, .from = x};

    b->round = sibling_ask_all(siblings_of(service_of(b)), &q, reach_of_request(x), &round_fns, b);
}

/* Fails if the order did not reach all. */
static int check_reached(const struct bulk_order *b, struct err *e)
{
    const struct siblings_missing *m = &b->missing;

    if (m->indexes > 0)
        return err_set(
            e, ERR_WORKER_UNAVAILABLE,
            "%zu nodes did not obey, %zu worker indexes have no worker now or moved (%.*s); "
            "of the others %zu sessions were ended: ask again",
            m->nodes, m->indexes, (int)MIN_OF(m->names.len, (size_t)200), m->names.p, b->ended);
    if (m->nodes > 0)
        return err_set(e, ERR_WORKER_UNAVAILABLE,
                       "%zu nodes did not obey (%.*s); of the others %zu sessions were ended: ask "
                       "again",
                       m->nodes, (int)MIN_OF(m->names.len, (size_t)200), m->names.p, b->ended);
    if (m->workers > 0)
        return err_set(e, ERR_WORKER_UNAVAILABLE,
                       "%zu workers did not obey; of the others %zu sessions were ended: ask again",
                       m->workers, b->ended);
    return 0;
}

MAY_PAUSE static int end_all(struct bulk_order *b, struct err *e)
{
    if (end_own(b, e))
        return -1;
    while (b->round || b->undurable > 0)
        if (task_wait(&b->changed, e))
            return -1;
    if (b->why.kind != ERR_NONE) {
        *e = b->why;
        return -1;
    }
    return check_reached(b, e);
}

static void put_counts(struct bulk_order *b)
{
    struct buf *out = &b->answer->out;

    buf_printf(out, "{\"status\":\"ok\",\"ended\":%zu,\"failed\":%zu", b->ended, b->failed);
    heritage_put_unreachable(service_of(b)->heritage, &(struct json_out){out, true});
    buf_add_c(out, '}');
}

static void end_sessions(struct answering *a, void *ctx)
{
    struct bulk_order *b = ctx;
    const struct service_request *r = &a->request;
    struct err e = {0};

    b->answer = a;
    task_shield();
    ask_others(b, exchange_body(r->x));
    if (end_all(b, &e) == 0) {
        put_counts(b);
        answering_end(a);
    } else {
        /* sessions that have ended stay ended, and a different worker cannot know of the
         * cancellation */
        if (e.kind == ERR_CANCELLED)
            (void)err_set(&e, ERR_DRAINING, "this worker ends: ask again");
        answering_fail(a, "", &e);
    }
    sibling_round_leave(b->round);
    ledger_forget(r->service->calls.ledger, b);
    session_walk_done(&b->walk);
    arena_done(&b->arena);
    free(b);
}

static void begin_bulk_order(struct service_request *r, enum session_end how)
{
    struct bulk_order *b = mem_zalloc(sizeof(*b));
    struct err e = {0};

    b->how = how;
    b->detail = control_take_body(r, &b->arena);
    b->labels = json_get(b->detail, "labels");
    b->newest = newest_serial(r->service->calls.store);
    if (json_is(b->labels, JSON_OBJECT) && b->labels->n > 0) {
        answering_start(r, end_sessions, b);
        return;
    }
    (void)err_field(&e, "labels", "labels is missing: at least one label that the sessions have");
    respond_error(r, NULL, &e);
    arena_done(&b->arena);
    free(b);
}

void control_abort_many(struct service_request *r)
{
    begin_bulk_order(r, SESSION_END_ABORT);
}

void control_finalize_many(struct service_request *r)
{
    begin_bulk_order(r, SESSION_END_FINALIZE);
}
