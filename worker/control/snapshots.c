/*
 * GET /sessions/{id}/snapshot and POST /sessions/import: a whole session as one JSON object, and a
 * new session that goes on from it. An object is made and sent in slices, as its reader takes them,
 * with its checksum at its end. The import is answered when its last record is durable; a
 * crash before that leaves a session that nobody knows of, which expires.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/codec/crc32c.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/snapshot.h"

enum {
    SNAPSHOT_VERSION = 1,
    STEP_BYTES = 24 << 10, /* encoded at once, */
    SLICE_BYTES = 64 << 10,
    SLICE_US = 250, /* and sent at once */
};

/* One on its way out. What fits into a slice is a plain answer. */
struct snapshot_sending {
    struct service_request request; /* until the answer has started */
    struct snapshot_writer writer;
    struct buf frames; /* read back, not yet written: less than a record and two bytes */
    size_t at;         /* in them */
    struct buf out;
    struct loop_task later; /* the next slice, after everybody else had a turn */
};

/* Lets the session go. */
static void sending_free(struct snapshot_sending *v)
{
    struct call_env *env = &v->request.service->calls;

    loop_task_cancel(env->loop, &v->later);
    session_unpin(env->store, v->writer.session);
    buf_done(&v->frames);
    buf_done(&v->out);
    free(v);
}

static void on_closed(void *ctx, bool delivered)
{
    (void)delivered;
    sending_free(ctx);
}

/* Base64 of the next bytes: in threes, but for the last ones. */
static void put_bytes(struct snapshot_sending *v, bool last)
{
    size_t n = MIN_OF(v->frames.len - v->at, (size_t)STEP_BYTES);

    n -= last && n == v->frames.len - v->at ? 0 : n % 3;
    base64_encode(v->frames.p + v->at, n, buf_reserve(&v->out, base64_encoded_len(n)));
    v->out.len += base64_encoded_len(n);
    v->at += n;
}

static void put_end(struct snapshot_sending *v)
{
    struct json_out o = {&v->out, true};

    buf_add_c(&v->out, '"');
    json_out_member_i64(&o, "n_records", v->writer.n);
    json_out_member_i64(&o, "crc32c", v->writer.crc);
    buf_add_c(&v->out, '}');
}

/* Some bytes more. 1: that was all. */
static int make_step(struct snapshot_sending *v, struct err *e)
{
    int rc = 0;

    if (v->frames.len - v->at < 3) {
        buf_consume(&v->frames, v->at);
        v->at = 0;
        rc = snapshot_next(&v->writer, &v->frames, e);
    }
    if (rc < 0)
        return -1;
    put_bytes(v, rc == 1);
    if (rc == 1)
        put_end(v);
    return rc;
}

static int make_slice(struct snapshot_sending *v, struct err *e)
{
    uint64_t end_us = clock_us() + SLICE_US;
    int rc;

    do
        rc = make_step(v, e);
    while (rc == 0 && v->out.len < SLICE_BYTES && clock_us() < end_us);
    return rc;
}

/* One slice; an error here can only break the connection. */
static void on_later(struct loop_task *t)
{
    struct snapshot_sending *v = CONTAINER_OF(t, struct snapshot_sending, later);
    struct exchange *x = v->request.x;
    struct err e = {0};
    int rc = make_slice(v, &e);

    if (rc < 0) {
        log_warn(&(struct log_scope){.session = session_id(v->writer.session)},
                 "a session's snapshot cannot be told", LOG_T("error", e.text));
        exchange_fail(x);
        return;
    }
    exchange_send(x, &v->out);
    if (rc == 1)
        exchange_end(x);
}

/* A fast client takes slice after slice: each waits for the next turn of the loop. */
static void on_more(void *ctx)
{
    struct snapshot_sending *v = ctx;

    loop_task_post(v->request.service->calls.loop, &v->later, on_later);
}

static void begin_stream(struct snapshot_sending *v)
{
    struct exchange *x = v->request.x;

    respond_count(v->request.service, v->request.dialect, 200);
    exchange_watch(x, on_closed, v);
    exchange_start(x, "application/json");
    exchange_send(x, &v->out);
    exchange_pull(x, on_more, v);
}

static void put_head(struct snapshot_sending *v)
{
    struct json_out o = json_out_to(&v->out);

    json_out_obj(&o);
    json_out_member_i64(&o, "version", SNAPSHOT_VERSION);
    json_out_member_str(&o, "session_id", session_id(v->writer.session));
    json_out_key(&o, "records");
    buf_add_c(&v->out, '"'); /* base64 needs no escapes */
}

void control_snapshot(struct service_request *r)
{
    struct snapshot_writer writer;
    struct snapshot_sending *v;
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    int rc;

    if (!s || snapshot_begin(s, &writer, &e) != 0) {
        respond_error(r, NULL, &e);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->request = *r;
    v->writer = writer;
    session_pin(s);
    put_head(v);
    rc = make_slice(v, &e);
    if (rc == 0) {
        begin_stream(v);
        return;
    }
    if (rc < 0)
        respond_error(r, NULL, &e);
    else
        respond_json(r, &v->out);
    sending_free(v);
}

/* --- import --- */

static int64_t number_of(const struct json *body, const char *name)
{
    int64_t v = -1;

    (void)json_to_i64(json_get(body, name), &v);
    return v;
}

/* The frames, in the arena. */
static int read_body(struct arena *a, const struct json *body, struct str *ret, struct err *e)
{
    struct str text = json_string(json_get(body, "records"));
    size_t n = 0;
    char *p;

    if (number_of(body, "version") != SNAPSHOT_VERSION)
        return err_field(e, "version", "version must be %d", SNAPSHOT_VERSION);
    if (!text.p)
        return err_field(e, "records", "records is required: a snapshot's, as GET told it");
    p = arena_alloc(a, text.len + 1);
    if (base64_decode(text, p, &n) != 0)
        return err_field(e, "records", "records must be base64");
    if (number_of(body, "crc32c") != (int64_t)crc32c(0, p, n))
        return err_field(e, "crc32c", "crc32c is not that of the records (%u)", crc32c(0, p, n));
    *ret = str_of(p, n);
    return 0;
}

static void write_all(struct service_request *r, const struct snapshot_target *to,
                      const struct snapshot_records *records, struct str from)
{
    struct ledger *l = r->service->calls.ledger;
    struct durable_answer *p = durable_answer_new(r, 200);
    struct json_out o = json_out_to(durable_answer_body(p));
    struct err e = {0};
    int rc = 0;

    json_out_obj(&o);
    control_put_created(r, to->id, to->now_ms, &o);
    json_out_key(&o, "imported_from");
    json_out_str(&o, from);
    json_out_end_obj(&o);
    metrics_count(r->service->calls.page, METRIC_sessions_created, 1);
    for (size_t i = 0; rc == 0 && i < records->all.n; i++) {
        bool last = i + 1 == records->all.n;

        rc = ledger_write(
            l, to->id, records->all.at[i],
            last ? (struct ledger_done){durable_answer_send, p} : (struct ledger_done){0}, &e);
    }
    if (rc != 0)
        durable_answer_fail(p, &e);
}

void control_import(struct service_request *r)
{
    char id[ID_TEXT_MAX];
    struct snapshot_target to = {.store = r->service->calls.store, .now_ms = clock_wall_ms()};
    struct snapshot_records records = {0};
    struct arena a = {0};
    struct err e = {0};
    const struct json *body = NULL;
    struct str frames = {0};

    to.id = str_of(id, ids_session(r->service->calls.ids, r->service->heritage->index, id));
    if (control_body(r, &a, &body, &e) || read_body(&a, body, &frames, &e) ||
        service_room(r->service, 1, &e) || snapshot_read(&to, frames, &a, &records, &e))
        respond_error(r, NULL, &e);
    else
        write_all(r, &to, &records, json_string(json_get(body, "session_id")));
    vec_done(&records.all);
    arena_done(&a);
}
