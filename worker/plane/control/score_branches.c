/* Scores branches one after the other until each has its score (control_score in handlers.h). */
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "worker/engine/scoring/scorers.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/awaits.h"
#include "worker/plane/service/service.h"
#include "worker/session/record/score.h"
#include "worker/session/store/session.h"

struct branch_scoring {
    struct service *service;
    struct session *session; /* the session, pinned by the caller */
    struct score_wants wants;
    struct arena arena; /* memory of the engines' names */
    struct score now;   /* the score that is missing */
    struct waiter answered;
    struct buf record; /* record of the answer; empty: the session has ended meanwhile */
    struct err err;    /* error of the engine, if there is no answer */
};

/* Reports whether the session is open. If not, it may be gone from the store, or its export may be
 * in progress. */
static bool is_open(const struct session *s)
{
    enum session_phase phase = session_phase(s);

    return phase == SESSION_OPEN || phase == SESSION_COMPLETED;
}

static void on_scored(void *ctx, const struct score_result *r)
{
    struct branch_scoring *v = ctx;

    v->now.logprobs = r->logprobs;
    v->now.top_ids = r->top_ids;
    v->now.top_logprobs = r->top_logprobs;
    if (is_open(v->session))
        session_score_record(v->session, &v->now, clock_wall_ms(), &v->record);
    waiter_wake(&v->answered);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct branch_scoring *v = ctx;

    v->err = *e;
    (void)err_set(&v->err, e->kind, "scorer %.*s: %s", (int)v->now.engine.len, v->now.engine.p,
                  e->text);
    waiter_wake(&v->answered);
}

/* Finds a missing score. Returns 1 with `now` set, 0 if none is missing. A finalized session gets
 * no more scores. Neither does a session after an agent has shown an image, because the ids alone
 * are then a different prompt. */
static int find_missing(struct branch_scoring *v, struct err *e)
{
    int rc = 0;

    if (!session_shows_images(v->session))
        rc = session_unscored(v->session, &v->wants, &v->now);
    if (rc > 0 && session_phase(v->session) == SESSION_FINALIZED)
        return err_set(e, ERR_SESSION_ENDED,
                       "the session was finalized before it had the score of %.*s",
                       (int)v->now.engine.len, v->now.engine.p);
    if (session_phase(v->session) == SESSION_ABORTED)
        return err_set(e, ERR_SESSION_ENDED, "the session ended while it was scored");
    return rc > 0 ? 1 : 0;
}

/* Asks the engine. Returns when the answer's record is made. */
MAY_PAUSE static int ask_scorer(struct branch_scoring *v, struct err *e)
{
    static const struct score_events events = {on_scored, on_failed};
    struct score_request q = {
        .session_id = session_id(v->session), .scorer = v->now.engine, .top_k = v->now.top_k};
    struct arena ids = {0};
    struct score_call *call = NULL;
    int rc = session_score_ids(&v->now, v->session, &ids, &q.ids, e);

    if (v->now.what == SCORE_SELF) /* other engines are not the policy, whatever version they use */
        q.lora = session_adapter(v->session);
    if (rc == 0)
        call = scorers_start(v->service->scorers, &q, &events, v);
    arena_done(&ids);
    if (rc)
        return -1;
    if (task_wait(&v->answered, e)) {
        scorers_cancel(call);
        return -1;
    }
    if (v->err.kind == ERR_NONE)
        return 0;
    *e = v->err;
    return -1;
}

MAY_PAUSE static int write_score(struct branch_scoring *v, struct err *e)
{
    struct durable_wait durable = {0};

    if (v->record.len == 0 || !is_open(v->session)) /* the next find_missing handles both cases */
        return 0;
    if (ledger_write(v->service->calls.ledger, session_id(v->session), buf_str(&v->record),
                     durable_wait_done(&durable), e))
        return -1;
    return await_durable(v->service, &durable, e);
}

MAY_PAUSE static int score_all(struct branch_scoring *v, struct err *e)
{
    int rc;

    while ((rc = find_missing(v, e)) == 1) {
        buf_clear(&v->record);
        if (ask_scorer(v, e) || write_score(v, e))
            return -1;
    }
    return rc;
}

int control_score(struct service *a, struct session *s, const struct json *given, struct err *e)
{
    struct branch_scoring v = {.service = a, .session = s, .wants = session_score_wants(s)};
    int rc;

    if (!json_is_null(given) && score_wants_read(given, &v.wants, e))
        return -1;
    for (size_t i = 0; i < v.wants.n; i++)
        if (scorers_find(a->scorers, v.wants.at[i].engine, e))
            return -1;
    if (!json_is_null(given) && v.wants.n > 0 && session_shows_images(s))
        return err_field(e, "score",
                         "score: the session has images, and scorers are asked with ids alone");
    /* the export's warnings name the scores that are unknown */
    if (v.wants.n == 0 || session_shows_images(s))
        return 0;
    for (size_t i = 0; i < v.wants.n; i++)
        v.wants.at[i].engine = arena_str(&v.arena, v.wants.at[i].engine);
    rc = score_all(&v, e);
    buf_done(&v.record);
    arena_done(&v.arena);
    return rc;
}
