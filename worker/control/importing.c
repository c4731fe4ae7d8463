/*
 * POST /sessions/import: a new session that goes on from a snapshot.
 *
 *   import_reading_run   in a helper: reads and checks it, and stores its pictures.
 *   copying_write        on the loop, in slices: the records into journal and store.
 *
 * Pictures are stored before there is a session: until its last record is written control_copies
 * says that they are wanted; whatever goes wrong drops both.
 */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "worker/call/work.h"
#include "worker/control/copying.h"
#include "worker/control/handlers.h"
#include "worker/control/import_reading.h"
#include "worker/service/respond.h"

struct importing {
    struct copying copy;
    struct long_work work;
    struct import_reading *reading; /* own */
    size_t given;                   /* records */
};

/* Not when a helper is stuck in it. */
static void importing_free(struct copying *c)
{
    struct importing *v = CONTAINER_OF(c, struct importing, copy);

    import_reading_free(v->reading);
    free(v);
}

static int import_run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    if (work_note_body(w, tools, exchange_body(v->copy.request.x), NULL, NULL, e))
        return -1;
    return import_reading_run(v->reading, e);
}

static int next_record(struct copying *c, struct str *ret, struct err *e)
{
    struct importing *v = CONTAINER_OF(c, struct importing, copy);

    (void)e;
    *ret = import_reading_record(v->reading, v->given++);
    return v->given == import_reading_records(v->reading);
}

/* It was read, or cannot be; its helper has let go. */
static void end(struct importing *v, const struct err *e)
{
    v->copy.pictures = import_reading_stored(v->reading);
    v->copy.from = import_reading_from(v->reading);
    if (e)
        copying_fail(&v->copy, e);
    else
        copying_write(&v->copy);
}

static void on_read(struct long_work *w, const struct err *e)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    if (w->stuck) /* the helper may still read all of it, and store pictures */
        respond_error(&v->copy.request, NULL, e);
    else
        end(v, e);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *w)
{
    struct importing *v = CONTAINER_OF(w, struct importing, work);

    v->copy.pictures = import_reading_stored(v->reading);
    copying_drop(&v->copy);
}

static struct importing *importing_new(struct service_request *r)
{
    struct importing *v = mem_zalloc(sizeof(*v));

    v->reading = import_reading_new(r, clock_wall_ms());
    v->copy = (struct copying){.request = *r,
                               .id = import_reading_id(v->reading),
                               .now_ms = import_reading_now_ms(v->reading),
                               .told_as = "imported_from",
                               .next = next_record,
                               .free = importing_free};
    v->work.run = import_run;
    v->work.done = on_read;
    v->work.is_long = true; /* pictures, and a disk */
    v->work.drop = on_dropped;
    v->work.exchange = r->x;
    copying_enter(&v->copy);
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
