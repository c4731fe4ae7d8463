/* struct scoring_wait (handlers.h): branches are scored one after the other until none lacks one.
 */
#include "worker/control/handlers.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/engine/scorers.h"
#include "worker/ledger/ledger.h"
#include "worker/service/service.h"
#include "worker/session/score.h"
#include "worker/session/session.h"

struct scoring_wait {
    struct service *service;
    struct session *session; /* pinned by the caller */
    struct score_wants wants;
    struct arena arena; /* names of engines */
    struct scoring_done done;
    struct score_call *call; /* NULL: none runs */
    struct score now;        /* what it is for */
    struct recall *recall;   /* its ids are being read back; or NULL */
    struct loop_task later;
    bool durable, applied; /* of the last record */
};

static void wait_free(struct scoring_wait *w)
{
    struct call_env *env = &w->service->calls;

    loop_task_cancel(env->loop, &w->later);
    ledger_forget(env->ledger, w);
    scorers_cancel(w->call);
    session_score_let(&w->recall);
    arena_done(&w->arena);
    free(w);
}

static void end(struct scoring_wait *w, const struct err *e)
{
    struct scoring_done done = w->done;
    struct err kept = {0};

    if (e)
        kept = *e;
    wait_free(w);
    done.fn(done.ctx, e ? &kept : NULL);
}

static void go_on(struct scoring_wait *w);

static void on_later(struct loop_task *t)
{
    go_on(CONTAINER_OF(t, struct scoring_wait, later));
}

static void next(struct scoring_wait *w)
{
    loop_task_post(w->service->calls.loop, &w->later, on_later);
}

/* A record may be durable before it is applied. */
static void on_durable(void *ctx)
{
    struct scoring_wait *w = ctx;

    w->durable = true;
    if (w->applied)
        next(w);
}

/* Else it has ended meanwhile: it may be gone from the store, or its export be made. */
static bool is_open(const struct scoring_wait *w)
{
    enum session_phase phase = session_phase(w->session);

    return phase == SESSION_OPEN || phase == SESSION_COMPLETED;
}

static void on_scored(void *ctx, const struct score_result *r)
{
    struct scoring_wait *w = ctx;
    struct call_env *env = &w->service->calls;
    struct buf record = {0};
    struct err e = {0};
    int rc;

    w->call = NULL;
    if (!is_open(w)) { /* go_on says what that means */
        next(w);
        return;
    }
    w->now.logprobs = r->logprobs;
    w->now.top_ids = r->top_ids;
    w->now.top_logprobs = r->top_logprobs;
    w->durable = w->applied = false;
    session_score_record(w->session, &w->now, clock_wall_ms(), &record);
    rc = ledger_write(env->ledger, session_id(w->session), buf_str(&record),
                      (struct ledger_done){on_durable, w}, &e);
    buf_done(&record);
    if (rc) {
        end(w, &e);
        return;
    }
    w->applied = true;
    if (w->durable)
        next(w);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct scoring_wait *w = ctx;
    struct err told = *e;

    w->call = NULL;
    (void)err_set(&told, e->kind, "scorer %.*s: %s", (int)w->now.engine.len, w->now.engine.p,
                  e->text);
    end(w, &told);
}

static const struct score_events events = {on_scored, on_failed};

/* What the score is of. True: more of it is read in a later turn. */
static bool read_ids(struct scoring_wait *w, struct arena *a, struct token_span *ret, int *ret_rc,
                     struct err *e)
{
    int rc = session_score_ids(&w->now, &w->recall, w->session, a, ret, e);

    if (rc == 1) {
        loop_task_post_behind(w->service->calls.loop, &w->later, on_later);
        return true;
    }
    session_score_let(&w->recall);
    *ret_rc = rc == 0 ? 1 : -1;
    return false;
}

/* Asks for what is missing, one branch after the other; ends when nothing is, and when an agent has
 * shown an image meanwhile: ids alone are another prompt. A session that was finalized has the
 * scores that it has. */
static void go_on(struct scoring_wait *w)
{
    struct score_request q = {.session_id = session_id(w->session)};
    struct arena ids = {0};
    struct err e = {0};
    int rc = 0;

    if (!session_shows_images(w->session))
        rc = w->recall || session_unscored(w->session, &w->wants, &w->now);
    if (rc > 0 && session_phase(w->session) == SESSION_FINALIZED)
        rc = err_set(&e, ERR_SESSION_ENDED,
                     "the session was finalized before it had the score of %.*s",
                     (int)w->now.engine.len, w->now.engine.p);
    if (session_phase(w->session) == SESSION_ABORTED)
        rc = err_set(&e, ERR_SESSION_ENDED, "the session ended while it was scored");
    if (rc > 0 && read_ids(w, &ids, &q.ids, &rc, &e))
        return;
    if (rc > 0) {
        q.scorer = w->now.engine;
        q.top_k = w->now.top_k;
        if (w->now.what == SCORE_SELF) /* others are not the policy, whatever it samples with */
            q.lora = session_adapter(w->session);
        w->call = scorers_start(w->service->scorers, &q, &events, w);
    }
    arena_done(&ids);
    if (rc <= 0)
        end(w, rc < 0 ? &e : NULL);
}

int scoring_wait_begin(struct service *a, struct session *s, const struct json *given,
                       struct scoring_done done, struct scoring_wait **ret, struct err *e)
{
    struct score_wants wants = session_score_wants(s);
    struct scoring_wait *w;

    if (!json_is_null(given) && score_wants_read(given, &wants, e))
        return -1;
    for (size_t i = 0; i < wants.n; i++)
        if (scorers_find(a->scorers, wants.at[i].engine, e))
            return -1;
    if (!json_is_null(given) && wants.n > 0 && session_shows_images(s))
        return err_field(e, "score",
                         "score: the session has images, and scorers are asked with ids alone");
    if (wants.n == 0 || session_shows_images(s)) /* the export's warnings tell what is not known */
        return 1;
    w = mem_zalloc(sizeof(*w));
    w->service = a;
    w->session = s;
    w->wants = wants;
    for (size_t i = 0; i < wants.n; i++)
        w->wants.at[i].engine = arena_str(&w->arena, wants.at[i].engine);
    w->done = done;
    *ret = w;
    next(w);
    return 0;
}

void scoring_wait_cancel(struct scoring_wait *w)
{
    if (w)
        wait_free(w);
}
