/* Sends exports of sessions: trajectories, finalize, samples, tokens. A task makes and sends them;
 * a helper thread does the long parts that need nothing of the session that changes. finalize
 * writes its record first, and notes in the journal that its answer was delivered, so that the
 * session may be dropped. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/export.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/control/ending.h"
#include "worker/plane/control/exporting_options.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/answering.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"
#include "worker/session/store/session.h"

struct exporting {
    struct service *service;
    struct answering *answer;
    struct session *s; /* the session, pinned */
    struct export *export;
    struct export_options options;
    struct arena arena;       /* memory that the options and `score` borrow */
    const struct json *score; /* member `score` of the body; NULL: absent */
    bool samples;             /* the request is for /samples */
};

static void exporting_free(struct exporting *v)
{
    session_unpin(v->service->calls.store, v->s);
    export_free(v->export);
    arena_done(&v->arena);
    free(v);
}

/* Notes in the journal that the export was delivered: the kernel has accepted its last byte, and
 * the peer, which may be a router, was still connected (exchange_closed_fn). */
static void note_delivery(struct exporting *v)
{
    struct call_env *env = &v->service->calls;
    struct str id = v->answer->request.id;
    struct buf record = {0};
    struct err e = {0};
    bool ended;

    if (session_find_any(env->store, id, &ended) != v->s)
        return; /* the session was deleted meanwhile */
    session_exported_record(v->s, clock_wall_ms(), &record);
    if (ledger_write(env->ledger, id, buf_str(&record), (struct ledger_done){0}, &e))
        log_warn(&(struct log_scope){.session = id}, "journal: an export was not noted",
                 LOG_T("error", e.text));
    buf_done(&record);
}

static void count_export(struct exporting *v)
{
    struct metrics_page *page = v->service->calls.page;
    const uint32_t *drifted = export_drifted(v->export), *merged = export_merged(v->export);

    for (unsigned k = 0; k < DRIFT_KIND_COUNT; k++)
        if (drifted[k] > 0)
            metrics_count_at(page, METRIC_drift, k, 0, drifted[k]);
    for (unsigned k = 0; k < 2; k++)
        if (merged[k] > 0)
            metrics_count_at(page, METRIC_merged, k, 0, merged[k]);
}

/* --- sending the export --- */

/* Passes an export to an answer. */
struct answer_out {
    struct export_out out;
    struct answering *answer;
};

MAY_PAUSE static int flow_answer(struct export_out *o, struct err *e)
{
    return answering_flow(CONTAINER_OF(o, struct answer_out, out)->answer, e);
}

MAY_PAUSE static int put_export(struct exporting *v, struct err *e)
{
    struct answer_out o = {.out = {.bytes = &v->answer->out, .flow = flow_answer},
                           .answer = v->answer};
    int rc = export_write(v->export, &o.out, e);

    count_export(v);
    if (rc == 0 && v->options.format != EXPORT_VIEW) {
        struct export_figures f = export_figures(v->export);

        run_count_export(&v->service->calls, v->s, f.trained, f.trajectories, f.drifted);
    }
    return rc;
}

/* Fixes the branches, and sends them. */
MAY_PAUSE static int send_export(struct exporting *v, struct err *e)
{
    struct call_env *env = &v->service->calls;
    bool strange = v->options.format == EXPORT_VIEW && exporting_strange_ids(v->service);

    v->options.store = env->media;
    v->options.held_bytes = &env->export_bytes;
    if (export_new(v->s, strange ? NULL : env->model, env->scratch, &v->options, &v->export, e))
        return -1;
    if (export_lacks_reward(v->export))
        log_warn(&(struct log_scope){.session = v->answer->request.id},
                 "an export for a trainer holds no reward: none was posted, or no number");
    if (export_has_no_calls(v->export) && session_phase(v->s) != SESSION_OPEN)
        log_warn(&(struct log_scope){.session = v->answer->request.id},
                 "a session without any call was exported: its agent used a different one, or "
                 "none");
    v->answer->type = export_content_type(v->export);
    return put_export(v, e);
}

/* Fails an export. A request for /samples fails in plain text, as its clients expect, if the
 * session cannot be assembled. */
static void fail_export(struct exporting *v, const struct err *e)
{
    const struct service_request *r = &v->answer->request;

    if (!v->samples || e->kind != ERR_UNASSEMBLABLE || v->answer->begun) {
        answering_fail(v->answer, "an export broke", e);
        return;
    }
    exchange_set_header(r->x, "x-should-retry", STR("false"));
    respond_count(r->service, r->dialect, err_status(e));
    exchange_reply(r->x, err_status(e), "text/plain; charset=utf-8", str_cstr(e->text));
}

static void export_session(struct answering *a, void *ctx)
{
    struct exporting *v = ctx;
    struct err e = {0};

    v->answer = a;
    if (send_export(v, &e) == 0)
        answering_end(a);
    else
        fail_export(v, &e);
    exporting_free(v);
}

/* --- requests for an export --- */

/* Makes an export of the session with the options of the request. Returns NULL if an error was
 * answered. */
static struct exporting *exporting_new(struct service_request *r, enum export_format otherwise)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct exporting *v;

    if (!s) {
        respond_error(r, NULL, &e);
        return NULL;
    }
    v = mem_zalloc(sizeof(*v));
    v->service = r->service;
    v->s = s;
    session_pin(s);
    if (exporting_options(r, otherwise, &v->arena, &v->options, &v->score, &e) == 0)
        return v;
    respond_error(r, NULL, &e);
    exporting_free(v);
    return NULL;
}

/* GET .../trajectories: does not change the session. */
void exporting_trajectories(struct service_request *r)
{
    struct exporting *v = exporting_new(r, EXPORT_JSON);

    if (v)
        answering_start(r, export_session, v);
}

/* GET .../samples, in the format of miles. */
void exporting_samples(struct service_request *r)
{
    struct exporting *v = exporting_new(r, EXPORT_MILES);

    if (!v)
        return;
    v->samples = true;
    answering_start(r, export_session, v);
}

/* Sends one branch token by token, for the web viewer. Runners may read their own session, too. */
void exporting_tokens(struct service_request *r)
{
    struct exporting *v = exporting_new(r, EXPORT_VIEW);
    struct session_past_response past;
    struct err e = {0};

    if (!v)
        return;
    exporting_view_options(r, &v->arena, &v->options);
    if (v->options.branch.p && !session_find_response(v->s, v->options.branch, &past)) {
        (void)err_field(&e, "branch", "the session has no answer with this response id");
        respond_error(r, NULL, &e);
        exporting_free(v);
        return;
    }
    answering_start(r, export_session, v);
}

/* --- finalize --- */

/* Ends the session. Returns when the record is applied, and as durable as promised. */
MAY_PAUSE static int close_session(struct exporting *v, struct err *e)
{
    struct durable_wait durable = {0};
    struct ledger_done done = durable_wait_done(&durable);

    if (session_phase(v->s) == SESSION_FINALIZED)
        ledger_wait_durable(v->service->calls.ledger, v->answer->request.id,
                            done); /* a repeated request gets the same export */
    else if (control_close(v->service, v->s, SESSION_END_FINALIZE, &v->options, done, e))
        return -1;
    return await_durable(v->service, &durable, e);
}

/* Reports errors before the session closes, because a reward may still be set then. */
MAY_PAUSE static int close_and_send(struct exporting *v, struct err *e)
{
    if (export_check_reward(v->s, &v->options, e) || control_score(v->service, v->s, v->score, e) ||
        close_session(v, e))
        return -1;
    return send_export(v, e);
}

static void finalize_session(struct answering *a, void *ctx)
{
    struct exporting *v = ctx;
    struct err e = {0};

    v->answer = a;
    if (close_and_send(v, &e))
        answering_fail(a, "an export broke", &e);
    else if (answering_end_wait(a))
        note_delivery(v);
    exporting_free(v);
}

void exporting_finalize(struct service_request *r)
{
    struct exporting *v = exporting_new(r, EXPORT_JSON);

    if (v)
        answering_start(r, finalize_session, v);
}
