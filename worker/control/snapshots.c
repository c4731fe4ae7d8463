/*
 * GET /sessions/{id}/snapshot: a whole session as one JSON object, for POST /sessions/import. It is
 * made and sent in slices, as its reader takes them: the records, the pictures that they name, and
 * the records' checksum at the end.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "worker/control/handlers.h"
#include "worker/control/sliced_answer.h"
#include "worker/control/snapshot_pictures.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"
#include "worker/session/snapshot.h"

enum { STEP_BYTES = 24 << 10 }; /* encoded at once */

/* One on its way out. */
struct snapshot_sending {
    struct sliced_answer answer;
    struct snapshot_writer writer;
    struct buf frames; /* read back, not yet written: less than a record and two bytes */
    size_t at;         /* in them */
    struct snapshot_pictures *pictures; /* NULL: there are none */
    bool told_records;
};

static void sending_free(struct sliced_answer *a)
{
    struct snapshot_sending *v = CONTAINER_OF(a, struct snapshot_sending, answer);

    snapshot_pictures_free(v->pictures);
    buf_done(&v->frames);
    free(v);
}

/* Base64 of the next bytes: in threes, but for the last ones. */
static void put_bytes(struct snapshot_sending *v, bool last)
{
    size_t n = MIN_OF(v->frames.len - v->at, (size_t)STEP_BYTES);

    n -= last && n == v->frames.len - v->at ? 0 : n % 3;
    base64_encode(v->frames.p + v->at, n, buf_reserve(&v->answer.out, base64_encoded_len(n)));
    v->answer.out.len += base64_encoded_len(n);
    v->at += n;
}

static void put_end(struct snapshot_sending *v)
{
    struct json_out o = {&v->answer.out, true};

    json_out_member_i64(&o, "n_records", v->writer.n);
    json_out_member_i64(&o, "crc32c", v->writer.crc);
    buf_add_c(&v->answer.out, '}');
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
        buf_add_c(&v->answer.out, '"');
    return rc;
}

/* Some bytes more (sliced_answer.h). */
static int make_step(struct sliced_answer *a, struct err *e)
{
    struct snapshot_sending *v = CONTAINER_OF(a, struct snapshot_sending, answer);
    int rc;

    if (v->told_records) {
        rc = snapshot_pictures_next(v->pictures, &v->answer.out, e);
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

static void put_head(struct snapshot_sending *v)
{
    struct json_out o = json_out_to(&v->answer.out);

    json_out_obj(&o);
    json_out_member_i64(&o, "version", SNAPSHOT_VERSION);
    json_out_member_str(&o, "session_id", session_id(v->writer.session));
    json_out_key(&o, "records");
    buf_add_c(&v->answer.out, '"'); /* base64 needs no escapes */
}

void control_snapshot(struct service_request *r)
{
    struct snapshot_writer writer;
    struct snapshot_sending *v;
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (!s || snapshot_begin(s, &writer, &e) != 0) {
        respond_error(r, NULL, &e);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->answer = (struct sliced_answer){
        .broken = "a session's snapshot cannot be told", .step = make_step, .free = sending_free};
    v->writer = writer;
    v->pictures = snapshot_pictures_new(r->service->calls.media, s);
    put_head(v);
    sliced_answer_send(&v->answer, r, s);
}
