/* The records of a fork or an import on their way (copying.h):
 *
 *   copying_write -> begin -> write_slice: next, then text_help_begin, then ledger_write, for each
 *                                |                   '-> on_texts -> write_slice
 *                                '-> write_last, and behind it the answer
 *
 * Each session that is being written stays in memory; so of many that come at once some are
 * written, and the others wait in the order of their coming. */
#include "worker/control/copying.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/control/ending.h"
#include "worker/control/handlers.h"
#include "worker/control/pending.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/service/respond.h"
#include "worker/session/session.h"
#include "worker/session/session_texts.h"

enum { SLICE_US = 250, WRITES_MAX = 8 };

static struct call_env *env_of(const struct copying *c)
{
    return &c->request.service->calls;
}

bool control_copies(const struct service *a, struct str id)
{
    const struct copying *c;

    LIST_EACH(&a->copies, c, struct copying, item)
        if (str_eq(c->id, id))
            return true;
    return false;
}

bool control_copies_from(const struct service *a, struct str id)
{
    const struct copying *c;

    LIST_EACH(&a->copies, c, struct copying, item)
        if (c->state == COPYING_READS && c->pictures && str_eq(c->from, id))
            return true;
    return false;
}

/* --- the end --- */

static void begin(struct loop_task *t);

static unsigned count_writes(const struct service *a)
{
    const struct copying *c;
    unsigned n = 0;

    LIST_EACH(&a->copies, c, struct copying, item)
        n += c->state == COPYING_WRITES;
    return n;
}

/* The first that waits has its turn, if it has come. */
static void let_next(struct service *a)
{
    struct copying *c;

    if (count_writes(a) >= WRITES_MAX)
        return;
    LIST_EACH(&a->copies, c, struct copying, item) {
        if (c->state != COPYING_WAITS)
            continue;
        c->state = COPYING_WRITES;
        loop_task_post(a->calls.loop, &c->later, begin);
        return;
    }
}

static void copying_free(struct copying *c)
{
    struct service *a = c->request.service;

    loop_task_cancel(a->calls.loop, &c->later);
    text_help_leave(&c->help);
    if (c->session)
        session_unpin(a->calls.store, c->session);
    list_remove(&c->item);
    c->free(c);
    let_next(a);
}

/* Nothing of it stays; but a session that cannot be taken back has its pictures. */
static void take_back(struct copying *c)
{
    struct service *a = c->request.service;
    bool ended;
    struct session *s = session_find(a->calls.store, c->id, &ended);
    struct err e = {0};

    text_help_leave(&c->help);
    if (s && control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(&(struct log_scope){.session = c->id},
                 "a session that was copied in part stays until the journal takes its end",
                 LOG_T("error", e.text));
    if (c->pictures && !session_is_kept(a->calls.store, c->id))
        media_store_drop(a->calls.media, c->id);
}

/* Who hears of an error finds nothing of it. */
void copying_fail(struct copying *c, const struct err *e)
{
    exchange_watch(c->request.x, NULL, NULL);
    take_back(c);
    respond_error(&c->request, NULL, e);
    copying_free(c);
}

void copying_drop(struct copying *c)
{
    take_back(c);
    copying_free(c);
}

static void on_left(void *ctx, bool delivered)
{
    (void)delivered;
    copying_drop(ctx);
}

/* --- writing --- */

static void put_answer(struct copying *c, struct buf *body)
{
    struct json_out o = json_out_to(body);

    json_out_obj(&o);
    control_put_created(&c->request, c->id, c->now_ms, &o);
    json_out_key(&o, c->told_as);
    json_out_str(&o, c->from);
    json_out_end_obj(&o);
}

/* The last record, and behind it the answer. */
static void write_last(struct copying *c)
{
    struct durable_answer *p = durable_answer_new(&c->request, 200);
    struct err e = {0};

    put_answer(c, durable_answer_body(p));
    if (ledger_write(env_of(c)->ledger, c->id, c->record,
                     (struct ledger_done){durable_answer_send, p}, &e) == 0) {
        metrics_count(env_of(c)->page, METRIC_sessions_created, 1);
    } else {
        take_back(c);
        durable_answer_fail(p, &e);
    }
    copying_free(c);
}

/* One that others follow. The session stays in memory until they are there. */
static int write_record(struct copying *c, struct err *e)
{
    int rc = ledger_write(env_of(c)->ledger, c->id, c->record, (struct ledger_done){0}, e);
    bool ended;

    c->record = (struct str){0};
    if (c->session) {
        session_texts_end(c->session);
    } else if (rc == 0) {
        c->session = session_find(env_of(c)->store, c->id, &ended);
        session_pin(c->session);
    }
    return rc;
}

enum copy_step { STEP_FAILED = -1, STEP_DONE, STEP_HELPED, STEP_LAST };

/* Reads a record, or writes the one that was read. */
static enum copy_step take_step(struct copying *c, struct err *e)
{
    int rc;

    if (!c->record.p) {
        rc = c->next(c, &c->record, e);
        c->last = rc == 1;
        c->helped = false;
        return rc < 0 ? STEP_FAILED : STEP_DONE;
    }
    if (c->session && !c->helped) {
        c->helped = true;
        if (text_help_begin(&c->help, env_of(c)->residency, c->session, c->record))
            return STEP_HELPED;
    }
    if (c->last)
        return STEP_LAST;
    return write_record(c, e) == 0 ? STEP_DONE : STEP_FAILED;
}

static void write_slice(struct loop_task *t)
{
    struct copying *c = CONTAINER_OF(t, struct copying, later);
    uint64_t end_us = clock_us() + SLICE_US;
    struct err e = {0};
    enum copy_step step;

    do {
        step = take_step(c, &e);
    } while (step == STEP_DONE && clock_us() < end_us);
    if (step == STEP_FAILED)
        copying_fail(c, &e);
    else if (step == STEP_LAST)
        write_last(c);
    else if (step == STEP_DONE)
        loop_task_post(env_of(c)->loop, t, write_slice);
}

static void on_texts(struct text_help *h, const struct err *e)
{
    struct copying *c = CONTAINER_OF(h, struct copying, help);

    if (e)
        copying_fail(c, e);
    else
        loop_task_post(env_of(c)->loop, &c->later, write_slice);
}

/* There may be no room any more that was there when it was asked for. */
static void begin(struct loop_task *t)
{
    struct copying *c = CONTAINER_OF(t, struct copying, later);
    struct err e = {0};

    if (service_room(c->request.service, 1, &e) != 0)
        copying_fail(c, &e);
    else
        write_slice(t);
}

void copying_enter(struct copying *c)
{
    c->help.done = on_texts;
    list_append(&c->request.service->copies, &c->item);
}

void copying_write(struct copying *c)
{
    exchange_watch(c->request.x, on_left, c);
    if (count_writes(c->request.service) >= WRITES_MAX) {
        c->state = COPYING_WAITS;
        return;
    }
    c->state = COPYING_WRITES;
    begin(&c->later);
}
