/* POST /sessions/{id}/logprobs: stores a trainer's logprobs of answers. All of them are checked
 * against the stored ids before the first record is written. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/run_counts.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/report_check.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/logprob_report.h"
#include "worker/session/store/session.h"

enum { TURNS_MAX = 10000 }; /* most turns of a request */

struct reporting {
    struct service *service;
    struct answering *answer;
    struct report_check check; /* the checks; their session is pinned */
    struct arena arena;        /* memory of the body and of all that is made from it */
    const struct json *body;
    struct reported_turn *turns;
    uint32_t n_turns;
    struct durable_wait durable;
};

static void reporting_free(struct reporting *v)
{
    session_unpin(v->service->calls.store, v->check.session);
    report_check_done(&v->check);
    arena_done(&v->arena);
    free(v);
}

static int read_version(struct reporting *v, struct err *e)
{
    v->check.version = json_text(json_get(v->body, "version"));
    if (v->check.version.len == 0)
        return err_field(e, "version", "version is missing: the weights of these logprobs");
    if (v->check.version.len > REPORT_VERSION_BYTES)
        return err_field(e, "version", "version: %zu bytes, at most %d", v->check.version.len,
                         REPORT_VERSION_BYTES);
    return 0;
}

/* Whether the session takes reports of the turns from `from` on; each counts, also one that
 * replaces another. */
static int check_bytes(const struct reporting *v, uint32_t from, struct err *e)
{
    uint64_t most = (uint64_t)v->service->config->max_session_report_bytes;
    uint64_t n = session_report_bytes(v->check.session);

    for (uint32_t i = from; i < v->n_turns; i++)
        n += logprob_report_bytes(v->turns[i].answer->n);
    return most == 0 || n <= most
               ? 0
               : limit_refuse(LIMIT_max_session_report_bytes, "turns", n, most, e);
}

MAY_PAUSE static int check_turns(struct reporting *v, struct err *e)
{
    const struct json *turns = json_get(v->body, "turns");

    if (read_version(v, e))
        return -1;
    if (!json_is(turns, JSON_ARRAY) || turns->n == 0)
        return err_field(e, "turns", "turns is missing: a list of objects");
    if (turns->n > TURNS_MAX)
        return err_field(e, "turns", "turns: %u, at most %d in one request", turns->n, TURNS_MAX);
    v->turns = arena_calloc(&v->arena, turns->n, sizeof(*v->turns));
    for (; v->n_turns < turns->n; v->n_turns++)
        if (report_check_turn(&v->check, v->n_turns, &turns->items[v->n_turns],
                              &v->turns[v->n_turns], e) ||
            task_pause(e))
            return -1;
    return check_bytes(v, 0, e);
}

/* --- records --- */

static bool is_gone(const struct reporting *v)
{
    bool ended;

    return session_find_any(v->service->calls.store, session_id(v->check.session), &ended) !=
               v->check.session ||
           session_phase(v->check.session) == SESSION_ABORTED ||
           !session_resident(v->check.session);
}

/* Checks the space again, because other requests may have written reports since the turns were
 * checked. Does not pause, so that the result still holds when the record is written. */
static int check_room(const struct reporting *v, uint32_t at, struct err *e)
{
    if (is_gone(v))
        return err_set(e, ERR_SESSION_ENDED, "the session has ended");
    if (check_bytes(v, at, e))
        return -1;
    return report_check_room(&v->check, at, v->turns[at].answer, e);
}

MAY_PAUSE static int write_turns(struct reporting *v, struct err *e)
{
    struct ledger *l = v->service->calls.ledger;
    struct buf record = {0};
    int rc = 0;

    for (uint32_t i = 0; i < v->n_turns && rc == 0; i++) {
        struct ledger_done done = {0};

        rc = check_room(v, i, e);
        if (rc)
            break;
        if (i == v->n_turns - 1)
            done = durable_wait_done(&v->durable);
        buf_clear(&record);
        session_report_record(v->check.session, v->turns[i].answer, v->check.version,
                              v->turns[i].logprobs, clock_wall_ms(), &record);
        rc = ledger_write(l, session_id(v->check.session), buf_str(&record), done, e);
        if (rc == 0 && i < v->n_turns - 1)
            rc = task_pause(e);
    }
    buf_done(&record);
    return rc ? -1 : await_durable(v->service, &v->durable, e);
}

static void write_report(struct reporting *v)
{
    struct json_out o = json_out_to(&v->answer->out);

    json_out_obj(&o);
    json_out_member_str(&o, "status", STR("ok"));
    json_out_member_i64(&o, "turns", v->n_turns);
    report_check_count(&v->check, v->service->calls.page, &o);
    json_out_end_obj(&o);
}

static void report_turns(struct answering *a, void *ctx)
{
    struct reporting *v = ctx;
    struct err e = {0};

    v->answer = a;
    if (check_turns(v, &e) == 0 && write_turns(v, &e) == 0) {
        write_report(v);
        answering_end(a);
    } else {
        answering_fail(a, "", &e);
    }
    reporting_free(v);
}

void control_logprobs(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct reporting *v;

    if (!s) {
        respond_error(r, NULL, &e);
        return;
    }
    v = mem_zalloc(sizeof(*v));
    v->service = r->service;
    v->check.session = s;
    session_pin(s);
    v->arena.sum = &r->service->calls.request_bytes;
    v->check.model = r->service->calls.model;
    v->check.run = call_run_board(&r->service->calls);
    v->check.arena = &v->arena;
    v->body = control_take_body(r, &v->arena);
    answering_start(r, report_turns, v);
}
