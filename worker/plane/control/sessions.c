/* The plain routes of the control plane: state, reward, complete, abort, delete. Each change is a
 * record that the ledger writes and applies. A task writes it and answers when it is durable. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "worker/dialect/responses.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/call/run_counts.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/body_read.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"
#include "worker/sink/sink.h"

/* `reading` also finds finalized sessions, which may be read but not changed. */
struct session *control_find(struct service_request *r, bool reading, struct err *e)
{
    bool ended = false;
    struct session_store *st = r->service->calls.store;
    struct session *s = NULL;

    if (r->id_valid)
        s = reading ? session_find_any(st, r->id, &ended) : session_find(st, r->id, &ended);
    if (!s && ended)
        (void)err_set(e, ERR_SESSION_ENDED, "the session has ended");
    else if (!s)
        (void)service_no_session(r, e);
    return s;
}

const struct json *control_body(const struct service_request *r)
{
    return r->body->json;
}

const struct json *control_take_body(const struct service_request *r, struct arena *a)
{
    arena_absorb(a, &r->body->arena);
    return r->body->json;
}

/* --- changes --- */

/* Writes the record of an end. The write is allowed even on a full disk if the end frees the
 * session's records. */
static int write_end(struct ledger *l, struct str id, struct str record, enum session_end how,
                     struct ledger_done done, struct err *e)
{
    bool frees = how == SESSION_END_DELETE || how == SESSION_END_ABORT;
    int rc = ledger_write(l, id, record, done, e);

    if (rc && frees && e->kind == ERR_STORAGE_FULL && ledger_free_reserve(l, id))
        rc = ledger_write(l, id, record, done, e);
    return rc;
}

/* `done` is called as by ledger_write. */
int control_end(struct service *a, struct session *s, enum session_end how,
                const struct json *detail, struct ledger_done done, struct err *e)
{
    struct buf record = {0};
    char id[ID_TEXT_MAX] = "";
    struct str sid = session_id(s);
    struct run_end *end = NULL;
    int rc = session_end_record(s, how, detail, clock_wall_ms(), &record, e);

    if (rc == 0)
        end = run_end_measure(&a->calls, s, how, !json_is_null(json_get(detail, "stopped_by")));
    /* copied, because s may be freed by the apply */
    memcpy(id, sid.p, MIN_OF(sid.len, sizeof(id) - 1));
    if (rc == 0)
        rc = write_end(a->calls.ledger, str_cstr(id), buf_str(&record), how, done, e);
    if (rc == 0) {
        run_end_count(end, &a->calls);
        end = NULL;
        if (how != SESSION_END_COMPLETE)
            model_call_end_session(&a->calls, str_cstr(id));
        else
            engine_pool_complete_session(a->calls.engines, str_cstr(id));
        waits_wake(a, str_cstr(id));
    }
    run_end_free(end);
    buf_done(&record);
    return rc;
}

/* The promise to the sinks is made before the record: a crash in between leaves a promise that is
 * cleared at the next start, never a finalized session that no sink knows of. */
int control_close(struct service *a, struct session *s, enum session_end how,
                  const struct export_options *o, struct ledger_done done, struct err *e)
{
    struct str id = session_id(s);
    char copy[ID_TEXT_MAX] = "";
    struct sinks *sinks = session_goes_to_sinks(s) ? a->sinks : NULL;
    bool rewarded = session_is_rewarded(s);

    memcpy(copy, id.p, MIN_OF(id.len, sizeof(copy) - 1));
    if (sinks_promise(sinks, s, o, e) || control_end(a, s, how, NULL, done, e))
        return -1;
    ending_count_reward(a, rewarded);
    sinks_take(sinks, str_cstr(copy));
    return 0;
}

/* A change of a session, on the caller's stack: the task uses it before its first pause. */
struct session_change {
    struct session *s;
    enum session_end how;
    const struct json *detail; /* body of the request, or NULL */
    struct str response_id;    /* for a reward */
};

/* Answers what was written. rc: the result of that. */
static void answer_written(struct answering *a, int rc, const struct err *e)
{
    if (rc) {
        answering_fail(a, "the answer to a change of a session broke", e);
        return;
    }
    if (a->status == 200)
        buf_puts(&a->out, "{\"status\":\"ok\"}");
    answering_end(a);
}

/* Answers when what was written is durable. rc: the result of writing. */
MAY_PAUSE static void answer_write(struct answering *a, int rc, struct durable_wait *durable,
                                   struct err *e)
{
    if (rc == 0)
        rc = await_durable(a->request.service, durable, e);
    answer_written(a, rc, e);
}

MAY_PAUSE static void end_session(struct answering *a, void *ctx)
{
    const struct session_change *c = ctx;
    struct durable_wait durable = {0};
    struct err e = {0};
    int rc;

    a->status = c->how == SESSION_END_COMPLETE ? 200 : 204;
    rc = control_end(a->request.service, c->s, c->how, c->detail, durable_wait_done(&durable), &e);
    answer_write(a, rc, &durable, &e);
}

/* Refuses as long as a sink needs the session's content. */
void control_delete(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (s && sinks_wait_for(r->service->sinks, s)) {
        (void)err_set(&e, ERR_STATE_CONFLICT,
                      "the session's export is on its way to the sinks: ask again");
        s = NULL;
    }
    if (s)
        answering_start(r, end_session, &(struct session_change){s, SESSION_END_DELETE, NULL, {0}});
    else
        respond_error(r, NULL, &e);
}

int control_await_durable(struct answering *a, struct err *e)
{
    struct durable_wait durable = {0};

    ledger_wait_durable(a->request.service->calls.ledger, a->request.id,
                        durable_wait_done(&durable));
    return await_durable(a->request.service, &durable, e);
}

/* Answers a request, as a task, when all that its session has is durable. `status` points to the
 * status: 200, with {"status":"ok"}, or 204. */
MAY_PAUSE static void control_answer_durable(struct answering *a, void *status)
{
    struct err e = {0};

    a->status = *(const int *)status;
    answer_written(a, control_await_durable(a, &e), &e);
}

/* Aborting a session that has ended already, perhaps a moment ago, succeeds. */
void control_abort(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, false, &e);

    if (s)
        answering_start(r, end_session,
                        &(struct session_change){s, SESSION_END_ABORT, control_body(r), {0}});
    else if (e.kind == ERR_SESSION_ENDED)
        answering_start(r, control_answer_durable, &(int){204});
    else
        respond_error(r, NULL, &e);
}

/* Writes the record of a reward, for the session or for one response. */
MAY_PAUSE static void write_reward(struct answering *a, void *ctx)
{
    const struct session_change *c = ctx;
    struct durable_wait durable = {0};
    struct buf record = {0};
    struct err e = {0};
    int rc = session_reward_record(c->s, c->detail, c->response_id, clock_wall_ms(), &record, &e);

    if (rc == 0)
        rc = ledger_write(a->request.service->calls.ledger, a->request.id, buf_str(&record),
                          durable_wait_done(&durable), &e);
    buf_done(&record);
    answer_write(a, rc, &durable, &e);
}

/* reward_info is stored as it was given. */
void control_reward(struct service_request *r)
{
    struct err e = {0};
    const struct json *body = control_body(r);
    struct str id = json_string(json_get(body, "response_id"));
    struct session *s = control_find(r, false, &e);

    if (s && json_is_null(json_get(body, "reward_info")))
        (void)err_field(&e, "reward_info", "reward_info is missing: an object of rewards");
    if (e.kind != ERR_NONE) {
        respond_error(r, NULL, &e);
        return;
    }
    if (id.p) /* the id with a dialect's prefix, or without any */
        id = response_bare_id(id);
    answering_start(r, write_reward,
                    &(struct session_change){
                        .s = s, .detail = json_get(body, "reward_info"), .response_id = id});
}

/* The body may contain the reward; one record then contains both. */
void control_complete(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, false, &e);

    if (s) /* the record contains the reward, too */
        answering_start(r, end_session,
                        &(struct session_change){s, SESSION_END_COMPLETE, control_body(r), {0}});
    else
        respond_error(r, NULL, &e);
}
