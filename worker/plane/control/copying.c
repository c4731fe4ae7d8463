/* Writes the records of a fork or an import (copying.h). Each session that is being written stays
 * in memory, so only a few are written at a time. The others wait in order of arrival. */
#include "worker/plane/control/copying.h"

#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/residency/residency.h"
#include "worker/session/record/session_texts.h"
#include "worker/session/store/session.h"

enum { WRITES_MAX = 8 };

static struct service *service_of(const struct copying *c)
{
    return c->answer->request.service;
}

static struct call_env *env_of(const struct copying *c)
{
    return &service_of(c)->calls;
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

/* --- which copies are written --- */

static unsigned count_writes(const struct service *a)
{
    const struct copying *c;
    unsigned n = 0;

    LIST_EACH(&a->copies, c, struct copying, item)
        n += c->state == COPYING_WRITES;
    return n;
}

/* Lets the first copy that waits write. */
static void wake_next(const struct service *a)
{
    struct copying *c;

    LIST_EACH(&a->copies, c, struct copying, item) {
        if (c->state != COPYING_WAITS)
            continue;
        c->state = COPYING_WRITES;
        waiter_wake(&c->waiter);
        return;
    }
}

/* Deletes the new session. If the deletion cannot be written, the pictures stay. */
static void delete_copy(struct copying *c)
{
    struct service *a = service_of(c);
    bool ended;
    struct session *s = session_find(a->calls.store, c->id, &ended);
    struct err e = {0};

    if (s && control_end(a, s, SESSION_END_DELETE, NULL, (struct ledger_done){0}, &e) != 0)
        log_warn(&(struct log_scope){.session = c->id},
                 "a session that was copied in part stays until the journal takes its end",
                 LOG_T("error", e.text));
    if (c->pictures && !session_is_kept(a->calls.store, c->id))
        media_store_drop(a->calls.media, c->id);
}

void copying_end(struct copying *c)
{
    const struct service *a = service_of(c);
    bool writes = c->state == COPYING_WRITES;

    if (!c->whole)
        delete_copy(c);
    if (c->session)
        session_unpin(a->calls.store, c->session);
    list_remove(&c->item);
    if (writes)
        wake_next(a);
}

/* --- writing --- */

static void put_answer(struct copying *c)
{
    struct json_out o = json_out_to(&c->answer->out);

    json_out_obj(&o);
    control_put_created(&c->answer->request, c->id, c->now_ms, &o);
    json_out_member_str(&o, c->told_as, c->from);
    json_out_end_obj(&o);
}

/* Keeps the session in memory until its other records are written. */
static int add_record(struct copying *c, struct str record, struct ledger_done done, struct err *e)
{
    int rc = ledger_write(env_of(c)->ledger, c->id, record, done, e);
    bool ended;

    if (c->session) {
        session_texts_end(c->session);
    } else if (rc == 0) {
        c->session = session_find(env_of(c)->store, c->id, &ended);
        session_pin(c->session);
    }
    return rc;
}

MAY_PAUSE static int write_last(struct copying *c, struct str record, struct err *e)
{
    struct durable_wait durable = {0};

    if (add_record(c, record, durable_wait_done(&durable), e))
        return -1;
    c->whole = true;
    metrics_count(env_of(c)->page, METRIC_sessions_created, 1);
    put_answer(c);
    if (await_durable(service_of(c), &durable, e) == 0)
        return 0;
    c->whole = e->kind == ERR_CANCELLED; /* else the client gets an error */
    return -1;
}

/* Lets a helper read the record's long texts before it is applied. */
MAY_PAUSE static int read_texts(const struct copying *c, struct str record, struct err *e)
{
    return c->session
               ? session_texts_make(c->session, record, &env_of(c)->residency->texts_bytes, e)
               : 0;
}

void copying_begin(struct copying *c)
{
    list_append(&service_of(c)->copies, &c->item);
}

/* Checks after the wait that there is space yet, and that no other node owns the place. */
int copying_wait(struct copying *c, struct err *e)
{
    c->state = count_writes(service_of(c)) < WRITES_MAX ? COPYING_WRITES : COPYING_WAITS;
    if (c->state == COPYING_WAITS && task_wait(&c->waiter, e))
        return -1;
    return service_room(service_of(c), 1, e) ? -1 : ledger_check_owner(env_of(c)->ledger, c->id, e);
}

int copying_write(struct copying *c, struct str record, bool last, struct err *e)
{
    if (task_pause(e) || read_texts(c, record, e))
        return -1;
    if (last)
        return write_last(c, record, e);
    return add_record(c, record, (struct ledger_done){0}, e);
}
