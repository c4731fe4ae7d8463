/*
 * POST /sessions/import: makes a new session that continues from a snapshot. A helper reads and
 * checks the snapshot and stores its pictures (import_reading_run). Then the records are written
 * (copying.h).
 *
 * Pictures are stored before the session exists: until its last record is written, control_copies
 * reports that the pictures are needed. An error drops both.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "worker/plane/call/work.h"
#include "worker/plane/control/copying.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/import_reading.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/respond.h"

struct importing {
    struct copying copy;
    struct import_reading *reading; /* own */
};

static int read_snapshot(void *ctx, void *tool, struct err *e)
{
    struct importing *v = ctx;
    struct answering *a = v->copy.answer;

    if (work_note_bytes(&a->body_hash, tool, exchange_body(a->request.x), e))
        return -1;
    return import_reading_run(v->reading, e);
}

MAY_PAUSE static int write_import(struct importing *v, struct err *e)
{
    /* storing pictures waits for the disk */
    struct task_work reads = {.fn = read_snapshot, .ctx = v, .lane = v->copy.id, .is_long = true};
    size_t n;
    int rc;

    answering_hold_body(v->copy.answer);
    rc = task_offload(&reads, e);
    answering_release_body(v->copy.answer);
    v->copy.pictures = import_reading_stored(v->reading);
    v->copy.from = import_reading_from(v->reading);
    if (rc || copying_wait(&v->copy, e))
        return -1;
    n = import_reading_records(v->reading);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = copying_write(&v->copy, import_reading_record(v->reading, i), i + 1 == n, e);
    return rc;
}

static void import_session(struct answering *a, void *ctx)
{
    struct importing *v = ctx;
    struct err e = {0};
    int rc;

    v->copy.answer = a;
    copying_begin(&v->copy);
    rc = write_import(v, &e);
    copying_end(&v->copy);
    if (rc == 0)
        answering_end(a);
    else
        answering_fail(a, "", &e);
    import_reading_free(v->reading);
    free(v);
}

void control_import(struct service_request *r)
{
    struct importing *v;
    struct err e = {0};

    if (service_room(r->service, 1, &e) ||
        service_body_room(r->service, exchange_closed_body(r->x).len, &e)) {
        respond_error(r, NULL, &e);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->reading = import_reading_new(r, clock_wall_ms());
    v->copy = (struct copying){.id = import_reading_id(v->reading),
                               .now_ms = import_reading_now_ms(v->reading),
                               .told_as = "imported_from"};
    answering_start(r, import_session, v);
}
