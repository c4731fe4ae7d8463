/*
 * POST /sessions/import: a new session that goes on from a snapshot.
 *
 *   import_reading_run   reads and checks it, and stores its pictures. In a helper, unless it is
 *                        short and has none.
 *   write_all            on the loop, in one step: the records into journal and store. The answer
 *                        goes out when the last is durable; a crash before that leaves a session
 *                        that nobody knows of, which expires.
 *
 * Pictures are stored before there is a session. Until then service.imports says that they are
 * wanted (control_imports), and whatever goes wrong drops them.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/call/work.h"
#include "worker/control/handlers.h"
#include "worker/control/import_reading.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"

struct importing {
    struct long_work work;
    struct service_request request; /* strings are the exchange's */
    struct list_item item;          /* of service->imports */
    struct import_reading reading;
};

bool control_imports(const struct service *a, struct str id)
{
    const struct importing *v;

    LIST_EACH(&a->imports, v, struct importing, item)
        if (str_eq(v->reading.to.id, id))
            return true;
    return false;
}

/* Not when a helper is stuck in it. */
static void importing_free(struct importing *v)
{
    list_remove(&v->item);
    import_reading_end(&v->reading);
    free(v);
}

static int import_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    return work_note(tools, w->body_hash, e) ? -1 : import_reading_run(&v->reading, e);
}

/* --- writing --- */

/* Nothing of it stays; but a session that cannot be taken back has its pictures. */
static void take_back(struct importing *v)
{
    struct service *a = v->request.service;
    struct str id = v->reading.to.id;
    bool ended;
    struct session *s = session_find(a->calls.store, id, &ended);
    struct err e = {0};

    if (s && control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(&(struct log_scope){.session = id},
                 "a session that was imported in part stays until it expires",
                 LOG_T("error", e.text));
    if (v->reading.pictures.stored && !session_is_kept(a->calls.store, id))
        media_store_drop(a->calls.media, id);
}

static void put_answer(struct importing *v, struct buf *body)
{
    struct json_out o = json_out_to(body);

    json_out_obj(&o);
    control_put_created(&v->request, v->reading.to.id, v->reading.to.now_ms, &o);
    json_out_key(&o, "imported_from");
    json_out_str(&o, v->reading.from);
    json_out_end_obj(&o);
}

static void write_all(struct importing *v)
{
    struct service *a = v->request.service;
    struct durable_answer *p = durable_answer_new(&v->request, 200);
    const struct snapshot_records *records = &v->reading.records;
    struct err e = {0};
    int rc = 0;

    put_answer(v, durable_answer_body(p));
    for (size_t i = 0; rc == 0 && i < records->all.n; i++) {
        bool last = i + 1 == records->all.n;

        rc = ledger_write(
            a->calls.ledger, v->reading.to.id, records->all.at[i],
            last ? (struct ledger_done){durable_answer_send, p} : (struct ledger_done){0}, &e);
    }
    if (rc == 0) {
        metrics_count(a->calls.page, METRIC_sessions_created, 1);
    } else {
        take_back(v);
        durable_answer_fail(p, &e);
    }
}

/* There may be no room any more that was there when it began. Who hears of an error finds nothing
 * of it. */
static void end(struct importing *v, const struct err *given)
{
    struct err e = {0};

    if (given) {
        e = *given;
    } else if (service_room(v->request.service, 1, &e) == 0) {
        write_all(v);
        importing_free(v);
        return;
    }
    take_back(v);
    respond_error(&v->request, NULL, &e);
    importing_free(v);
}

/* --- life --- */

static void on_read(struct long_work *w, const struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);
    struct exchange *x = v->request.x;

    exchange_watch(x, NULL, NULL);
    if (w->stuck) { /* the helper may still read all of it, and store pictures */
        exchange_strand(x);
        respond_error(&v->request, NULL, e);
        return;
    }
    end(v, e);
    exchange_let(x);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *w)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);
    struct exchange *x = v->request.x;

    take_back(v);
    importing_free(v);
    exchange_let(x);
}

static void on_left(void *ctx, bool delivered)
{
    struct importing *v = ctx;

    (void)delivered;
    work_drop(&v->work);
}

static struct importing *importing_new(struct service_request *r)
{
    struct call_env *env = &r->service->calls;
    struct importing *v = mem_zalloc(sizeof(*v));

    v->request = *r;
    v->reading.arena.sum = &env->request_bytes;
    import_reading_begin(&v->reading, r);
    v->work.run = import_run;
    v->work.done = on_read;
    v->work.drop = on_dropped;
    v->work.body_hash = work_hash(env, exchange_body(r->x), NULL);
    list_append(&r->service->imports, &v->item);
    return v;
}

void control_import(struct service_request *r)
{
    struct str body = exchange_body(r->x);
    bool is_short = body.len <= WORK_JSON_MAX && str_find(body, STR("\"media\""), 0) == SIZE_MAX;
    struct importing *v;
    enum work_state state;
    struct err e = {0};

    if (service_room(r->service, 1, &e) || service_body_room(r->service, body.len, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    v = importing_new(r);
    state = work_begin(&r->service->calls, &v->work, v->reading.to.id, is_short, &e);
    if (state != WORK_HELPED) {
        end(v, state == WORK_FAILED ? &e : NULL);
        return;
    }
    exchange_hold(r->x);
    exchange_watch(r->x, on_left, v);
}
