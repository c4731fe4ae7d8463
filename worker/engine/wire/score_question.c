/* Sends the call and reads its answer as it comes (score_answer.h). */
#include "worker/engine/wire/score_question.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/processed.h"
#include "worker/engine/wire/score_answer.h"
#include "worker/engine/wire/scoring.h"

enum { REFUSAL_MAX = 16 * 1024 }; /* most bytes of an answer with a status other than 200 */

struct score_question {
    struct remote *remote;
    struct str session_id;
    const struct score_ask *ask;
    struct http_call *http; /* NULL: the call has ended */
    int status;
    struct score_answer answer;
    struct buf refusal;
    score_question_done_fn done;
    void *ctx;
};

static void score_question_free(struct score_question *c)
{
    score_answer_done(&c->answer);
    buf_done(&c->refusal);
    free(c);
}

void score_question_cancel(struct score_question *c)
{
    if (!c)
        return;
    if (c->http)
        http_call_cancel(c->http);
    score_question_free(c);
}

static void end(struct score_question *c, int rc, float logprob, const struct err *e)
{
    score_question_done_fn done = c->done;
    void *ctx = c->ctx;

    score_question_free(c);
    done(ctx, rc, logprob, e);
}

/* Handles the complete answer. */
static void take_answer(struct score_question *c)
{
    struct processed p = {.sampling = c->ask->sampling, .vocab_size = c->ask->vocab_size};
    float logprob = 0;
    int rc = score_answer_own(&c->answer, &p.own);

    if (c->answer.seed >= 0 && c->answer.seed != c->ask->seed && remote_echoes(c->remote, false)) {
        remote_note_stray(c->remote, c->session_id, STR("of a question about a logprob"));
        end(c, SCORE_STRAY, 0, NULL);
        return;
    }
    if (rc != SCORE_FOUND || c->ask->raw) {
        end(c, rc, p.own, NULL);
        return;
    }
    p.logprobs = c->answer.tops;
    rc = processed_logprob(&p, &logprob);
    end(c, rc, logprob, NULL);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct score_question *)ctx)->status = h->status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct score_question *c = ctx;
    struct err e = {0};

    if (c->status != 200) {
        buf_add_up_to(&c->refusal, bytes, REFUSAL_MAX);
        return;
    }
    if (score_answer_feed(&c->answer, bytes, &e) == 0)
        return;
    http_call_cancel(c->http);
    end(c, -1, 0, &e);
}

/* 500: the server's output was not UTF-8, for example because the token begins inside a character.
 * 503: the server was restarted. */
static void on_done(void *ctx)
{
    struct score_question *c = ctx;
    struct err e = {0};

    c->http = NULL;
    if (c->status == 200) {
        take_answer(c);
        return;
    }
    if (c->status == 500) {
        end(c, SCORE_WIDER, 0, NULL);
        return;
    }
    remote_note_score_refused(c->remote, c->status, buf_str(&c->refusal));
    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE, "the engine cannot be asked for logprobs: %d",
                  c->status);
    end(c, c->status == 503 ? -1 : SCORE_NONE, 0, &e);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    end(ctx, -1, 0, e);
}

static const struct http_events http_events = {on_head, on_body, on_done, on_failed};

struct score_question *score_question_start(struct remote *r, struct str session_id,
                                            const struct score_ask *ask,
                                            score_question_done_fn done, void *ctx)
{
    struct score_question *c = mem_zalloc(sizeof(*c));
    struct wire_send send = {0};
    struct buf headers = {0};
    struct http_request h = {.method = "POST",
                             .total_timeout_ms = r->options->timeout_ms,
                             .idle_timeout_ms = r->options->idle_timeout_ms};

    *c = (struct score_question){
        .remote = r, .session_id = session_id, .ask = ask, .done = done, .ctx = ctx};
    score_answer_begin(&c->answer, ask, r->wire->score_fields, r->wire->n_score_fields);
    r->wire->write_score(ask, &send);
    remote_headers(r, &headers, session_id, STR("application/json"), STR("application/json"));
    h.path = str_cstr(send.path);
    h.headers = buf_str(&headers);
    h.body = &send.body;
    c->http = http_client_start(r->client, &h, &http_events, c);
    buf_done(&headers);
    return c;
}
