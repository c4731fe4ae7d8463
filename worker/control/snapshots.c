/*
 * GET /sessions/{id}/snapshot and POST /sessions/import: a whole session as one JSON object, and a
 * new session that goes on from it. The import is answered when its last record is durable; a
 * crash before that leaves a session that nobody knows of, which expires.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/base64.h"
#include "common/codec/crc32c.h"
#include "common/codec/json.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/snapshot.h"

enum { SNAPSHOT_VERSION = 1 };

/* Base64 needs no escapes. */
static void put_records(struct json_out *o, struct buf *frames)
{
    size_t n = base64_encoded_len(frames->len);
    char *text = mem_calloc(n + 1, 1);

    base64_encode(frames->p, frames->len, text);
    json_out_key(o, "records");
    o->comma = true;
    buf_add_c(o->b, '"');
    buf_add(o->b, text, n);
    buf_add_c(o->b, '"');
    free(text);
}

void control_snapshot(struct service_request *r)
{
    struct buf frames = {0}, body = {0};
    struct json_out o = json_out_to(&body);
    struct err e = {0};
    uint32_t n;
    struct session *s = control_find(r, true, &e);

    if (!s || snapshot_write(s, &frames, &n, &e) != 0) {
        respond_error(r, NULL, &e);
    } else {
        json_out_obj(&o);
        json_out_member_i64(&o, "version", SNAPSHOT_VERSION);
        json_out_key(&o, "session_id");
        json_out_str(&o, session_id(s));
        json_out_member_i64(&o, "n_records", n);
        json_out_member_i64(&o, "crc32c", crc32c(0, frames.p, frames.len));
        put_records(&o, &frames);
        json_out_end_obj(&o);
        respond_json(r, &body);
    }
    buf_done(&frames);
    buf_done(&body);
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
