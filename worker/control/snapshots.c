/*
 * GET /sessions/{id}/snapshot: a whole session as one JSON object, for POST /sessions/import. It is
 * made and sent in slices, as its reader takes them: the records, the pictures that they name, and
 * the records' checksum at the end.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/serve/exchange.h"
#include "worker/control/handlers.h"
#include "worker/control/snapshot_pictures.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"
#include "worker/session/snapshot.h"

enum {
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
    struct snapshot_pictures *pictures; /* NULL: there are none */
    bool told_records;
    struct buf out;
    struct loop_task later; /* the next slice, after everybody else had a turn */
};

/* Lets the session go. */
static void sending_free(struct snapshot_sending *v)
{
    struct call_env *env = &v->request.service->calls;

    loop_task_cancel(env->loop, &v->later);
    snapshot_pictures_free(v->pictures);
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

    json_out_member_i64(&o, "n_records", v->writer.n);
    json_out_member_i64(&o, "crc32c", v->writer.crc);
    buf_add_c(&v->out, '}');
}

/* Some bytes of the records more. 1: that was all. */
static int put_records(struct snapshot_sending *v, struct err *e)
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
        buf_add_c(&v->out, '"');
    return rc;
}

/* Some bytes more. 1: that was all. */
static int make_step(struct snapshot_sending *v, struct err *e)
{
    int rc;

    if (v->told_records) {
        rc = snapshot_pictures_next(v->pictures, &v->out, e);
    } else {
        rc = put_records(v, e);
        v->told_records = rc == 1;
        if (rc == 1 && v->pictures)
            return 0;
    }
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
    v->pictures = snapshot_pictures_new(r->service->calls.media, s);
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
