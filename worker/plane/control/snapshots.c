/*
 * GET /sessions/{id}/snapshot: sends a whole session as one JSON object, for POST /sessions/import:
 * the records, the pictures that they name, and the records' checksum at the end. The object is
 * made as fast as the client reads it.
 */
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/snapshot_pictures.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"
#include "worker/session/record/snapshot.h"
#include "worker/session/store/session.h"

/* bytes that are encoded at once; a multiple of three, for base64 */
enum { STEP_BYTES = 24 << 10 };

static void put_base64(struct buf *out, const char *p, size_t n)
{
    base64_encode(p, n, buf_reserve(out, base64_encoded_len(n)));
    out->len += base64_encoded_len(n);
}

/* Encodes the frames except an incomplete group of three bytes, which stays in `frames` unless it
 * is the last. */
MAY_PAUSE static int put_frames(struct answering *a, struct buf *frames, bool last, struct err *e)
{
    size_t n = frames->len - (last ? 0 : frames->len % 3);

    for (size_t at = 0; at < n; at += STEP_BYTES) {
        put_base64(&a->out, frames->p + at, MIN_OF(n - at, (size_t)STEP_BYTES));
        if (answering_flow(a, e))
            return -1;
    }
    buf_consume(frames, n);
    return 0;
}

MAY_PAUSE static int put_records(struct answering *a, struct snapshot_writer *w, struct err *e)
{
    struct buf frames = {0};
    int rc;

    do {
        rc = snapshot_next(w, &frames, e);
        if (rc >= 0 && put_frames(a, &frames, rc == 1, e))
            rc = -1;
    } while (rc == 0);
    buf_done(&frames);
    return rc == 1 ? 0 : -1;
}

MAY_PAUSE static int put_all(struct answering *a, struct snapshot_writer *w,
                             struct snapshot_pictures *p, struct err *e)
{
    struct json_out o = json_out_to(&a->out);

    json_out_obj(&o);
    json_out_member_i64(&o, "version", SNAPSHOT_VERSION);
    json_out_member_str(&o, "session_id", session_id(w->session));
    json_out_key(&o, "records");
    buf_add_c(&a->out, '"'); /* base64 needs no escapes */
    if (put_records(a, w, e))
        return -1;
    buf_add_c(&a->out, '"');
    if (p && snapshot_pictures_write(p, a, e))
        return -1;
    o = (struct json_out){&a->out, true};
    json_out_member_i64(&o, "n_records", w->n);
    json_out_member_i64(&o, "crc32c", w->crc);
    buf_add_c(&a->out, '}');
    return 0;
}

static void write_snapshot(struct answering *a, void *ctx)
{
    struct session *s = ctx;
    struct snapshot_pictures *p = NULL;
    struct snapshot_writer w;
    struct err e = {0};
    int rc = snapshot_begin(s, &w, &e);

    if (rc == 0) { /* the pictures that these records name */
        p = snapshot_pictures_new(a->request.service->calls.media, s);
        rc = put_all(a, &w, p, &e);
    }
    if (rc == 0)
        answering_end(a);
    else
        answering_fail(a, "a session's snapshot cannot be told", &e);
    snapshot_pictures_free(p);
    session_unpin(a->request.service->calls.store, s);
}

void control_snapshot(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    session_pin(s);
    answering_start(r, write_snapshot, s);
}
