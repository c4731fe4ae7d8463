/* Trajectories on their way out: trajectories, finalize, samples. Made and sent in slices.
 *
 *   find_or_reply -> exporting_new   the session, pinned; options of Accept, query and body
 *   (finalize: the record is written, applied and durable before anything is sent)
 *   send_export                      fixes the branches
 *   on_later -> on_more -> on_later  a slice, as fast as the client takes them
 *   on_later -> on_helped            what is long, and needs nothing of the session: in a helper
 *
 * Until the first byte an error is a plain answer; afterwards only a broken connection tells it.
 * finalize notes in the journal that its answer was delivered, so that the session may be
 * dropped. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/proc/ids.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/call/call_env.h"
#include "worker/control/ending.h"
#include "worker/control/exporting_options.h"
#include "worker/control/handlers.h"
#include "worker/export/drift.h"
#include "worker/export/export.h"
#include "worker/export/slice.h"
#include "worker/ledger/ledger.h"
#include "worker/service/respond.h"
#include "worker/service/service.h"
#include "worker/session/session.h"
#include "worker/sink/export_help.h"

struct exporting {
    struct service *service;
    struct exchange *x;
    struct session *s; /* pinned until the export has it, or NULL */
    struct export *export;
    struct buf out;
    unsigned dialect;
    char request_id[40];
    char id[ID_TEXT_MAX];
    struct export_options options;
    struct arena arena;           /* what options and `score` borrow */
    const struct json *score;     /* the body's member; NULL: there is none */
    struct scoring_wait *scoring; /* finalize: what other engines have to tell first, or NULL */
    struct loop_task later;       /* the next slice, after everybody else had a turn */
    struct export_help *help;     /* NULL: no helper has the export */
    bool stuck;                   /* one has it for ever */
    bool started;
    bool closes;                        /* finalize */
    bool samples;                       /* asked for by /samples */
    uint32_t drifted[DRIFT_KIND_COUNT]; /* counted so far */
};

/* Lets the session go. Not when a helper is stuck in it. */
static void exporting_free(struct exporting *v)
{
    loop_task_cancel(v->service->calls.loop, &v->later);
    if (v->stuck)
        return;
    scoring_wait_cancel(v->scoring);
    if (v->s)
        session_unpin(v->service->calls.store, v->s);
    export_free(v->export);
    buf_done(&v->out);
    arena_done(&v->arena);
    free(v);
}

/* The trainer has it all: the journal says so. */
static void note_delivery(struct exporting *v)
{
    struct call_env *env = &v->service->calls;
    struct str id = str_cstr(v->id);
    struct buf record = {0};
    struct err e = {0};
    bool ended;

    if (session_find_any(env->store, id, &ended) != v->s)
        return; /* deleted meanwhile */
    session_exported_record(v->s, clock_wall_ms(), &record);
    if (ledger_write(env->ledger, id, buf_str(&record), (struct ledger_done){0}, &e))
        log_warn(&(struct log_scope){.session = id}, "journal: an export was not noted",
                 LOG_T("error", e.text));
    buf_done(&record);
}

/* Over: delivered, or the client left. */
static void on_closed(void *ctx, bool delivered)
{
    struct exporting *v = ctx;

    if (!v->started)
        ledger_forget(v->service->calls.ledger, v);
    else if (delivered && v->closes)
        note_delivery(v);
    if (v->help)
        export_help_leave(v->help);
    else
        exporting_free(v);
}

/* /samples says in plain text why a session cannot be assembled, as its clients expect. */
static void fail(struct exporting *v, const struct err *e)
{
    exchange_watch(v->x, NULL, NULL);
    if (v->samples && e->kind == ERR_UNASSEMBLABLE) {
        exchange_set_header(v->x, "x-should-retry", STR("false"));
        respond_count(v->service, v->dialect, err_status(e));
        exchange_reply(v->x, err_status(e), "text/plain; charset=utf-8", str_cstr(e->text));
    } else {
        respond_error_to(v->service, v->x, NULL, v->dialect, v->request_id, e);
    }
    exporting_free(v);
}

static void on_more(void *ctx);
static void on_later(struct loop_task *t);

/* Adds what the last slice found to the metrics. */
static void count_drift(struct exporting *v)
{
    const uint32_t *n = export_drifted(v->export);

    for (unsigned k = 0; k < DRIFT_KIND_COUNT; k++)
        if (n[k] > v->drifted[k])
            metrics_count_at(v->service->calls.page, METRIC_drift, k, 0, n[k] - v->drifted[k]);
    memcpy(v->drifted, n, sizeof(v->drifted));
}

/* What was merged is known at the end. */
static void count_merge(struct exporting *v)
{
    const uint32_t *n = export_merged(v->export);

    for (unsigned k = 0; k < 2; k++)
        if (n[k] > 0)
            metrics_count_at(v->service->calls.page, METRIC_merged, k, 0, n[k]);
}

/* An export that fails in the middle breaks the connection. */
static void give_up(struct exporting *v, const struct err *e)
{
    log_warn(NULL, "an export broke", LOG_T("session", v->id), LOG_T("error", e->text));
    if (!v->started) {
        fail(v, e);
        return;
    }
    exchange_fail(v->x);
}

static void on_helped(void *ctx, const struct err *e, bool stuck)
{
    struct exporting *v = ctx;

    v->help = NULL;
    v->stuck = stuck;
    if (e)
        give_up(v, e);
    else
        loop_task_post(v->service->calls.loop, &v->later, on_later);
}

/* The client left, and the helper has let go. */
static void on_help_left(void *ctx)
{
    exporting_free(ctx);
}

static void ask_helper(struct exporting *v)
{
    static const struct export_help_events events = {on_helped, on_help_left};
    struct call_env *env = &v->service->calls;

    v->help = export_help_begin(env, v->export, str_cstr(v->id), &events, v);
    if (!v->help)
        loop_task_post(env->loop, &v->later, on_later);
}

/* The next slice. Until there are bytes an error is still a plain answer. */
static void on_later(struct loop_task *t)
{
    struct exporting *v = CONTAINER_OF(t, struct exporting, later);
    struct err e = {0};
    int rc = export_slice(v->export, &v->out, &e);

    count_drift(v);
    if (rc == 1)
        count_merge(v);
    if (rc < 0) {
        give_up(v, &e);
        return;
    }
    if (export_has_work(v->export)) { /* what was written so far goes out with what comes */
        ask_helper(v);
        return;
    }
    if (!v->started && v->out.len == 0 && rc == 0) {
        loop_task_post(v->service->calls.loop, &v->later, on_later);
        return;
    }
    if (!v->started) {
        v->started = true;
        respond_count(v->service, v->dialect, 200);
        exchange_start(v->x, export_content_type(v->export));
    }
    if (v->out.len > 0)
        exchange_send(v->x, &v->out);
    if (rc == 1)
        exchange_end(v->x);
    else
        exchange_pull(v->x, on_more, v);
}

/* The client takes bytes. A fast one would take slice after slice without the loop ever looking
 * at another connection: each slice waits for the next turn of the loop. */
static void on_more(void *ctx)
{
    struct exporting *v = ctx;

    if (!v->help) /* else on_helped does */
        loop_task_post(v->service->calls.loop, &v->later, on_later);
}

/* Fixes the branches and begins. */
static void send_export(struct exporting *v)
{
    struct call_env *env = &v->service->calls;
    struct err e = {0};
    bool strange = v->options.format == EXPORT_VIEW && exporting_strange_ids(v->service);

    v->options.store = env->media;
    v->options.held_bytes = &env->export_bytes;
    v->options.helped = env->helpers != NULL;
    if (export_new(v->s, strange ? NULL : env->model, env->scratch, &v->options, &v->export, &e)) {
        fail(v, &e);
    } else {
        if (export_lacks_reward(v->export))
            log_warn(&(struct log_scope){.session = str_cstr(v->id)},
                     "an export for a trainer holds no reward: none was posted, or no number");
        if (export_has_no_calls(v->export) && session_phase(v->s) != SESSION_OPEN)
            log_warn(&(struct log_scope){.session = str_cstr(v->id)},
                     "a session without any call was exported: its agent used a different one, or "
                     "none");
        on_later(&v->later);
    }
}

/* With the options of the request. NULL and answered when they are bad. */
static struct exporting *exporting_new(struct service_request *r, struct session *s,
                                       enum export_format otherwise)
{
    struct exporting *v = mem_zalloc(sizeof(*v));
    struct err e = {0};

    v->service = r->service;
    v->x = r->x;
    v->s = s;
    session_pin(s);
    v->dialect = r->dialect;
    memcpy(v->request_id, r->request_id, sizeof(v->request_id));
    memcpy(v->id, r->id.p, r->id.len);
    v->samples = otherwise == EXPORT_MILES;
    exchange_watch(v->x, on_closed, v);
    if (exporting_options(r, otherwise, &v->arena, &v->options, &v->score, &e) == 0)
        return v;
    fail(v, &e);
    return NULL;
}

/* The session is there to be read, or the error is answered. */
static struct session *find_or_reply(struct service_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (!s)
        respond_error(r, NULL, &e);
    return s;
}

/* GET .../trajectories: the session stays as it is. */
void exporting_trajectories(struct service_request *r)
{
    struct session *s = find_or_reply(r);
    struct exporting *v = s ? exporting_new(r, s, EXPORT_JSON) : NULL;

    if (v)
        send_export(v);
}

/* GET .../samples, in miles' format. */
void exporting_samples(struct service_request *r)
{
    struct session *s = find_or_reply(r);
    struct exporting *v = s ? exporting_new(r, s, EXPORT_MILES) : NULL;

    if (v)
        send_export(v);
}

/* One branch token by token, for the viewer: runners may look at their session's, too. */
void exporting_tokens(struct service_request *r)
{
    struct session *s = find_or_reply(r);
    struct exporting *v = s ? exporting_new(r, s, EXPORT_VIEW) : NULL;
    struct session_past_response past;
    struct err e = {0};

    if (!v)
        return;
    exporting_view_options(r, &v->arena, &v->options);
    if (v->options.branch.p && !session_find_response(s, v->options.branch, &past)) {
        (void)err_field(&e, "branch", "the session has no answer with this response id");
        fail(v, &e);
        return;
    }
    send_export(v);
}

static void on_begin(struct loop_task *t)
{
    send_export(CONTAINER_OF(t, struct exporting, later));
}

/* The record is applied, and as durable as it is to be. Not from inside of control_close, which
 * still ends the calls that run: on the next turn of the loop. */
static void on_finalized(void *ctx)
{
    struct exporting *v = ctx;

    loop_task_post(v->service->calls.loop, &v->later, on_begin);
}

/* Scored, where it is wanted: now it closes, and is exported. */
static void close_session(struct exporting *v)
{
    struct err e = {0};

    if (session_phase(v->s) == SESSION_FINALIZED)
        ledger_settle(v->service->calls.ledger, str_cstr(v->id), /* asked again: the same export */
                      (struct ledger_done){on_finalized, v});
    else if (control_close(v->service, v->s, SESSION_END_FINALIZE, &v->options,
                           (struct ledger_done){on_finalized, v}, &e))
        fail(v, &e);
}

static void on_scored(void *ctx, const struct err *e)
{
    struct exporting *v = ctx;

    v->scoring = NULL;
    if (e)
        fail(v, e);
    else
        close_session(v);
}

/* Other engines' logprobs come first, where they are wanted. */
static int begin_scoring(struct exporting *v, struct err *e)
{
    int rc = scoring_wait_begin(v->service, v->s, v->score, (struct scoring_done){on_scored, v},
                                &v->scoring, e);

    if (rc > 0)
        close_session(v);
    return rc < 0 ? -1 : 0;
}

void exporting_finalize(struct service_request *r)
{
    struct session *s = find_or_reply(r);
    struct exporting *v = s ? exporting_new(r, s, EXPORT_JSON) : NULL;
    struct err e = {0};

    if (!v)
        return;
    v->closes = true;
    if (export_check_reward(s, &v->options, &e)) { /* before it closes: a reward may still come */
        fail(v, &e);
        return;
    }
    if (begin_scoring(v, &e))
        fail(v, &e);
}
