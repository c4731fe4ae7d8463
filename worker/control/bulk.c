/*
 * POST /sessions/abort and /sessions/finalize: all sessions with certain labels. This worker goes
 * through its own, one after the other in slices, and asks the others to do the same ("?local=1");
 * the answer counts them all, once every record is durable. A session whose row is not known is
 * read back first. Once begun it is carried out, whether or not the client stays.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "common/os/loop.h"
#include "common/proc/heritage.h"
#include "common/serve/exchange.h"
#include "worker/control/ending.h"
#include "worker/control/handlers.h"
#include "worker/control/session_walk.h"
#include "worker/control/sibling.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

enum { SLICE_MS = 2 };

struct bulk_order {
    struct list_item item; /* of service->bulks */
    struct service *service;
    struct exchange *x; /* NULL: the client has left */
    unsigned dialect;
    enum session_end how;
    struct arena arena;
    const struct json *labels, *detail;
    struct session_walk walk;
    uint64_t newest; /* serial; sessions made meanwhile are left alone */
    struct loop_task later;
    bool through;     /* all of this worker's were looked at */
    size_t undurable; /* records that are not durable yet */
    struct sibling_round *round;
    size_t ended, failed, silent; /* sessions; workers that did not answer */
};

/* --- the end --- */

static void bulk_free(struct bulk_order *b)
{
    session_walk_done(&b->walk);
    loop_task_cancel(b->service->calls.loop, &b->later);
    ledger_forget(b->service->calls.ledger, b);
    if (b->x)
        exchange_watch(b->x, NULL, NULL);
    list_remove(&b->item);
    arena_done(&b->arena);
    free(b);
}

/* The exchange, to be answered now: it is not the order's any more. NULL: the client has left. */
static struct exchange *take_exchange(struct bulk_order *b)
{
    struct exchange *x = b->x;

    b->x = NULL;
    if (x)
        exchange_watch(x, NULL, NULL);
    return x;
}

static void bulk_end(struct bulk_order *b)
{
    struct buf body = {0};
    struct err e = {0};
    struct exchange *x;

    if (!b->through || b->round || b->undurable > 0)
        return;
    x = take_exchange(b);
    buf_printf(&body, "{\"status\":\"ok\",\"ended\":%zu,\"failed\":%zu", b->ended, b->failed);
    heritage_put_unreachable(b->service->heritage, &(struct json_out){&body, true});
    buf_add_c(&body, '}');
    if (x && b->silent > 0) {
        (void)err_set(&e, ERR_WORKER_UNAVAILABLE,
                      "%zu workers did not obey; of the others %zu sessions were ended: ask again",
                      b->silent, b->ended);
        respond_error_to(b->service, x, NULL, b->dialect, "", &e);
    } else if (x) {
        respond_count(b->service, b->dialect, 200);
        exchange_reply(x, 200, "application/json", buf_str(&body));
    }
    buf_done(&body);
    bulk_free(b);
}

static void on_closed(void *ctx, bool delivered)
{
    struct bulk_order *b = ctx;

    (void)delivered;
    b->x = NULL;
}

/* --- the others --- */

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

static void on_round(void *ctx, size_t failed)
{
    struct bulk_order *b = ctx;

    b->round = NULL;
    b->silent = failed;
    bulk_end(b);
}

static const struct sibling_round_fns round_fns = {on_obeyed, on_round};

/* --- this worker's own --- */

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
    bulk_end(b);
}

static void end_one(struct bulk_order *b, struct session *s)
{
    struct ledger_done done = {on_durable, b};
    struct err e = {0};
    int rc;

    b->undurable++; /* `done` may come at once */
    rc = b->how == SESSION_END_ABORT ? control_end(b->service, s, b->how, b->detail, done, &e)
                                     : control_close(b->service, s, b->how, NULL, done, &e);
    if (rc == 0) {
        b->ended++;
        return;
    }
    b->undurable--;
    b->failed++;
    log_warn(NULL, "a session with these labels was not ended", LOG_T("error", e.text));
}

static void go_on(struct bulk_order *b);

static void on_later(struct loop_task *t)
{
    go_on(CONTAINER_OF(t, struct bulk_order, later));
}

static void on_back(void *ctx, const struct err *e)
{
    struct bulk_order *b = ctx;

    if (e) {
        b->failed++;
        session_walk_leave(&b->walk, b->walk.awaited);
    }
    loop_task_post(b->service->calls.loop, &b->later, on_later);
}

/* The next one that has not ended; NULL: there is none. */
static struct session *next_one(struct bulk_order *b)
{
    struct session_store *st = b->service->calls.store;
    struct session *s = session_walk_next(&b->walk, st);

    while (s && (session_phase(s) == SESSION_FINALIZED || session_phase(s) == SESSION_ABORTED)) {
        session_walk_pass(&b->walk, s);
        s = session_next(st, s);
    }
    return s && session_serial(s) <= b->newest ? s : NULL;
}

/* Before it is read back: no label is missing for certain. */
static bool may_have_labels(const struct bulk_order *b, const struct session *s)
{
    for (uint32_t i = 0; i < b->labels->n; i++)
        if (!session_may_have_label(s, json_string(&b->labels->members[i].key)))
            return false;
    return true;
}

/* Ends it if it has the labels; then it may be gone. */
static void look_at(struct bulk_order *b, struct session *s, bool has)
{
    if (has && b->how == SESSION_END_ABORT)
        session_walk_leave(&b->walk, session_serial(s));
    else
        session_walk_pass(&b->walk, s);
    if (has)
        end_one(b, s);
}

/* As many as the slice has time for, or until one has to be read back. */
static void go_on(struct bulk_order *b)
{
    struct residency *r = b->service->calls.residency;
    uint64_t end_ms = clock_ms() + SLICE_MS;
    struct buf row = {0};
    struct session *s = next_one(b);

    b->undurable++; /* nothing that comes at once ends the order meanwhile */
    while (s && clock_ms() < end_ms) {
        bool may = may_have_labels(b, s) && !session_copying(s);

        if (may && !session_walk_row(&b->walk, r, s, &row, on_back, b))
            goto out;
        look_at(b, s, may && has_labels(b, buf_str(&row)));
        s = next_one(b);
    }
    if (s)
        loop_task_post(b->service->calls.loop, &b->later, on_later);
    else
        b->through = true;
out:
    b->undurable--;
    buf_done(&row);
    bulk_end(b);
}

static uint64_t newest_serial(struct session_store *st)
{
    uint64_t newest = 0;

    for (struct session *s = session_next(st, NULL); s; s = session_next(st, s))
        newest = MAX_OF(newest, session_serial(s));
    return newest;
}

static void ask_others(struct bulk_order *b)
{
    struct sibling_question q = {.method = "POST", .body = exchange_body(b->x), .from = b->x};
    struct buf path = {0};

    buf_add_str(&path, exchange_path(b->x));
    buf_puts(&path, "?local=1");
    q.path = buf_str(&path);
    b->round = sibling_ask_all(siblings_of(b->service), &q, &round_fns, b);
    buf_done(&path);
}

static void begin(struct service_request *r, enum session_end how)
{
    struct bulk_order *b = mem_zalloc(sizeof(*b));
    struct err e = {0};

    b->service = r->service;
    b->x = r->x;
    b->dialect = r->dialect;
    b->how = how;
    list_append(&r->service->bulks, &b->item);
    exchange_watch(b->x, on_closed, b);
    b->detail = control_take_body(r, &b->arena);
    b->labels = json_get(b->detail, "labels");
    if (!json_is(b->labels, JSON_OBJECT) || b->labels->n == 0) {
        (void)err_field(&e, "labels",
                        "labels is missing: at least one label that the sessions have");
        (void)take_exchange(b);
        respond_error(r, NULL, &e);
        bulk_free(b);
        return;
    }
    b->newest = newest_serial(r->service->calls.store);
    if (!query_get(&b->arena, exchange_query(r->x), "local").p)
        ask_others(b);
    go_on(b);
}

void control_abort_many(struct service_request *r)
{
    begin(r, SESSION_END_ABORT);
}

void control_finalize_many(struct service_request *r)
{
    begin(r, SESSION_END_FINALIZE);
}

void bulks_done(struct service *a)
{
    struct bulk_order *b, *next;
    struct exchange *x;
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "this worker ends: ask again");
    LIST_EACH_SAFE(&a->bulks, b, next, struct bulk_order, item) {
        if (b->round) /* its end comes, once nobody asks any more */
            continue;
        x = take_exchange(b);
        if (x)
            respond_error_to(a, x, NULL, b->dialect, "", &e);
        bulk_free(b);
    }
}
