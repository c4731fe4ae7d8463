/*
 * POST /sessions/import: a new session that goes on from a snapshot.
 *
 *   import_reading_run   in a helper: reads and checks it, and stores its pictures.
 *   write_slice          on the loop, in slices: the records into journal and store. The answer
 *                        goes out when the last is durable. A copy that was not written to its
 *                        end is hidden (session_copying), and deleted by the next sweep.
 *
 * Pictures are stored before there is a session. Until its last record is written service.imports
 * says that they are wanted, and that the session is not there yet (control_imports); whatever goes
 * wrong drops both.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/call/work.h"
#include "worker/control/ending.h"
#include "worker/control/handlers.h"
#include "worker/control/import_reading.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"

enum { SLICE_US = 250 };

struct importing {
    struct long_work work;
    struct service_request request; /* strings are the exchange's */
    struct list_item item;          /* of service->imports */
    struct import_reading *reading; /* own */
    struct session *session;        /* pinned, once it has its first record */
    size_t written;                 /* records */
    struct loop_task later;         /* the next slice, after everybody else had a turn */
};

bool control_imports(const struct service *a, struct str id)
{
    const struct importing *v;

    LIST_EACH(&a->imports, v, struct importing, item)
        if (str_eq(import_reading_id(v->reading), id))
            return true;
    return false;
}

/* Not when a helper is stuck in it. */
static void importing_free(struct importing *v)
{
    struct call_env *env = &v->request.service->calls;

    loop_task_cancel(env->loop, &v->later);
    if (v->session)
        session_unpin(env->store, v->session);
    list_remove(&v->item);
    import_reading_free(v->reading);
    free(v);
}

static int import_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    return work_note(tools, w->body_hash, e) ? -1 : import_reading_run(v->reading, e);
}

/* --- writing --- */

/* Nothing of it stays; but a session that cannot be taken back has its pictures. */
static void take_back(struct importing *v)
{
    struct service *a = v->request.service;
    struct str id = import_reading_id(v->reading);
    bool ended;
    struct session *s = session_find(a->calls.store, id, &ended);
    struct err e = {0};

    if (s && control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(&(struct log_scope){.session = id},
                 "a session that was imported in part stays until the journal takes its end",
                 LOG_T("error", e.text));
    if (import_reading_stored(v->reading) && !session_is_kept(a->calls.store, id))
        media_store_drop(a->calls.media, id);
}

static void put_answer(struct importing *v, struct buf *body)
{
    struct json_out o = json_out_to(body);

    json_out_obj(&o);
    control_put_created(&v->request, import_reading_id(v->reading),
                        import_reading_now_ms(v->reading), &o);
    json_out_key(&o, "imported_from");
    json_out_str(&o, import_reading_from(v->reading));
    json_out_end_obj(&o);
}

/* Who hears of an error finds nothing of it. */
static void fail(struct importing *v, const struct err *e)
{
    exchange_watch(v->request.x, NULL, NULL);
    take_back(v);
    respond_error(&v->request, NULL, e);
    importing_free(v);
}

/* The last record, and behind it the answer. */
static void write_last(struct importing *v)
{
    struct call_env *env = &v->request.service->calls;
    struct durable_answer *p = durable_answer_new(&v->request, 200);
    struct err e = {0};

    put_answer(v, durable_answer_body(p));
    if (ledger_write(env->ledger, import_reading_id(v->reading),
                     import_reading_record(v->reading, v->written),
                     (struct ledger_done){durable_answer_send, p}, &e) == 0) {
        metrics_count(env->page, METRIC_sessions_created, 1);
    } else {
        take_back(v);
        durable_answer_fail(p, &e);
    }
    importing_free(v);
}

/* One that others follow. The session stays in memory until they are there. */
static int write_next(struct importing *v, struct err *e)
{
    struct call_env *env = &v->request.service->calls;
    bool ended;

    if (ledger_write(env->ledger, import_reading_id(v->reading),
                     import_reading_record(v->reading, v->written), (struct ledger_done){0},
                     e) != 0)
        return -1;
    if (v->written++ == 0) {
        v->session = session_find(env->store, import_reading_id(v->reading), &ended);
        session_pin(v->session);
    }
    return 0;
}

static void write_slice(struct loop_task *t)
{
    struct importing *v = CONTAINER_OF(t, struct importing, later);
    uint64_t end_us = clock_us() + SLICE_US;
    struct err e = {0};

    while (v->written + 1 < import_reading_records(v->reading)) {
        if (write_next(v, &e) != 0) {
            fail(v, &e);
            return;
        }
        if (clock_us() >= end_us) {
            loop_task_post(v->request.service->calls.loop, &v->later, write_slice);
            return;
        }
    }
    write_last(v);
}

/* The client left between two slices. */
static void on_left_writing(void *ctx, bool delivered)
{
    struct importing *v = ctx;

    (void)delivered;
    take_back(v);
    importing_free(v);
}

/* There may be no room any more that was there when it began. */
static void end(struct importing *v, const struct err *given)
{
    struct err e = {0};

    if (given || service_room(v->request.service, 1, &e) != 0) {
        fail(v, given ? given : &e);
        return;
    }
    exchange_watch(v->request.x, on_left_writing, v);
    write_slice(&v->later);
}

/* --- life --- */

static void on_read(struct long_work *w, const struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    if (w->stuck) /* the helper may still read all of it, and store pictures */
        respond_error(&v->request, NULL, e);
    else
        end(v, e);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *w)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    take_back(v);
    importing_free(v);
}

static struct importing *importing_new(struct service_request *r)
{
    struct call_env *env = &r->service->calls;
    struct importing *v = mem_zalloc(sizeof(*v));

    v->request = *r;
    v->reading = import_reading_new(r, clock_wall_ms());
    v->work.run = import_run;
    v->work.done = on_read;
    v->work.drop = on_dropped;
    v->work.exchange = r->x;
    v->work.body_hash = work_hash(env, exchange_body(r->x), NULL);
    list_append(&r->service->imports, &v->item);
    return v;
}

void control_import(struct service_request *r)
{
    struct importing *v;
    enum work_state state;
    struct err e = {0};

    if (service_room(r->service, 1, &e) ||
        service_body_room(r->service, exchange_closed_body(r->x).len, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    v = importing_new(r);
    state = work_begin(&r->service->calls, &v->work, import_reading_id(v->reading), false, &e);
    if (state != WORK_HELPED)
        end(v, state == WORK_FAILED ? &e : NULL);
}
