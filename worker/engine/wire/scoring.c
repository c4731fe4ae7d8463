/*
 * Each missing token is asked for in up to three ways, each more expensive than the one before:
 *
 *   ASK_ITSELF   the token is forced: its own logprob is returned
 *   ASK_BESIDE   a stop token is forced, and the token is searched among WIDE alternatives: for
 *                tokens that end inside a character, which are not returned by themselves, and
 *                for those that begin inside one, whose text alone the server refuses (500)
 *   ASK_ALL      the same with the whole vocabulary
 *
 * One answer has one basis. If the request changes logits, alternatives do not show the
 * distribution that was sampled from. So all tokens are scored from the logits alone
 * (lower_to_raw).
 */
#include "worker/engine/wire/scoring.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/processed.h"
#include "worker/engine/wire/score_answer.h"
#include "worker/engine/wire/wire_reply.h"

/* --- one question --- */

/* Gets SCORE_* with the logprob, or -1 and e. The call is freed then. */
typedef void (*score_question_done_fn)(void *ctx, int rc, float logprob, const struct err *e);

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

/* Cancels the question without a callback. Accepts NULL. */
static void score_question_cancel(struct score_question *c)
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
        buf_add_str(&c->refusal,
                    str_sub(bytes, 0, REFUSAL_MAX - MIN_OF(c->refusal.len, (size_t)REFUSAL_MAX)));
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

/* Sends the question. All arguments must outlive it. `done` is called once, later. */
static struct score_question *score_question_start(struct remote *r, struct str session_id,
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

/* --- scoring --- */

enum {
    CALLS_MAX = 8192, /* most tokens of one answer that are scored */
    WIDE = 1024,      /* alternatives that nearly always include the sampled token */
};

/* Ways to ask for one token, in order. */
enum scoring_step {
    ASK_ITSELF,
    ASK_BESIDE,
    ASK_ALL,
    STEPS,
};

struct scoring {
    struct remote *remote;
    const struct engine_request *req;
    struct reply *reply;
    void (*done)(void *ctx, const struct err *e);
    void *ctx;
    struct token_vec ids; /* ids of prompt and answer */
    size_t next;          /* index in reply->lacks */
    bool strayed;         /* the answer to the question belonged to a different request */
    enum scoring_step step;
    struct score_ask ask;
    struct score_question *asked; /* pending question, or NULL */
};

static void scoring_free(struct scoring *s)
{
    vec_done(&s->ids);
    free(s);
}

void scoring_cancel(struct scoring *s)
{
    if (!s)
        return;
    score_question_cancel(s->asked);
    scoring_free(s);
}

static void end_scoring(struct scoring *s, const struct err *e)
{
    void (*done)(void *ctx, const struct err *e) = s->done;
    void *ctx = s->ctx;

    scoring_free(s);
    done(ctx, e);
}

static void fail_scoring(struct scoring *s)
{
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_INVALID,
                  "the engine told no logprob for token %u, id %d, and cannot be asked for it",
                  s->reply->lacks.at[s->next].at, s->ask.id);
    end_scoring(s, &e);
}

/* Sets the forced token and the number of alternatives for the step. Returns false if the step is
 * impossible. */
static bool set_step(struct scoring *s)
{
    const struct engine_options *opt = s->remote->options;
    struct score_ask *ask = &s->ask;

    ask->vocab_size = opt->vocab_size;
    ask->force = ask->id;
    ask->n_probs = ask->raw ? 1 : WIDE;
    if (s->step == ASK_ITSELF)
        return true;
    ask->force = opt->n_stop_ids > 0 ? opt->stop_ids[0] : -1;
    ask->n_probs = s->step == ASK_BESIDE ? WIDE : opt->vocab_size;
    return ask->force >= 0 && ask->n_probs > 0;
}

static void on_answer(void *ctx, int rc, float logprob, const struct err *e);

/* Sends the next question about the present token, skipping impossible steps. */
static void ask_next_token(struct scoring *s)
{
    while (s->step < STEPS && !set_step(s))
        s->step++;
    s->ask.seed = (uint32_t)str_hash(s->req->session_id, clock_us() + s->next) & INT32_MAX;
    if (s->step == STEPS)
        fail_scoring(s);
    else
        s->asked = score_question_start(s->remote, s->req->session_id, &s->ask, on_answer, s);
}

/* Reports whether the token's text is whole characters, as far as the lacks show: neither it nor
 * the token before it ends inside one. */
static bool is_whole(const struct scoring *s)
{
    const struct reply_lack *lack = &s->reply->lacks.at[s->next];

    return !lack->inside && !(s->next > 0 && lack[-1].inside && lack[-1].at + 1 == lack->at);
}

static void begin_token(struct scoring *s)
{
    const struct reply_lack *lack = &s->reply->lacks.at[s->next];

    s->step = is_whole(s) ? ASK_ITSELF : ASK_BESIDE;
    s->ask.prompt = (struct token_span){s->ids.at, s->req->prompt.n + lack->at};
    s->ask.id = s->reply->ids.at[lack->at];
}

/* Handles the step's answer. */
static void on_answer(void *ctx, int rc, float logprob, const struct err *e)
{
    struct scoring *s = ctx;

    s->asked = NULL;
    if (rc < 0) {
        end_scoring(s, e);
        return;
    }
    if (rc == SCORE_WIDER) {
        s->step++;
        ask_next_token(s);
        return;
    }
    if (rc == SCORE_STRAY && !s->strayed) {
        s->strayed = true;
        ask_next_token(s);
        return;
    }
    if (rc != SCORE_FOUND) {
        fail_scoring(s);
        return;
    }
    s->strayed = false;
    s->reply->logprobs.at[s->reply->lacks.at[s->next].at] = logprob;
    s->reply->scored++;
    if (++s->next == s->reply->lacks.n) {
        end_scoring(s, NULL);
        return;
    }
    begin_token(s);
    ask_next_token(s);
}

/* Changes the answer's basis to raw: all its tokens are scored from the logits alone, and
 * alternatives of a different basis are dropped. Penalties, biases and grammars change logits in
 * ways that alternatives do not show, and one answer has one basis. */
static void lower_to_raw(struct reply *y)
{
    struct reply_lacks all = {0};
    size_t next = 0;

    for (uint32_t i = 0; i < y->ids.n; i++) {
        bool lacks = next < y->lacks.n && y->lacks.at[next].at == i;

        *vec_push(&all) = (struct reply_lack){i, lacks && y->lacks.at[next].inside};
        next += lacks;
    }
    for (size_t i = 0; i < y->tops.n; i++)
        y->tops.at[i] = (struct engine_top){-1, NAN};
    vec_done(&y->lacks);
    y->lacks = all;
    y->basis = BASIS_RAW;
    y->lowered = true;
}

struct scoring *scoring_new(struct remote *r, const struct engine_request *q, struct reply *y,
                            void (*done)(void *ctx, const struct err *e), void *ctx)
{
    struct scoring *s = mem_zalloc(sizeof(*s));

    *s = (struct scoring){.remote = r, .req = q, .reply = y, .done = done, .ctx = ctx};
    vec_reserve(&s->ids, q->prompt.n + y->ids.n);
    for (size_t i = 0; i < q->prompt.n; i++)
        *vec_push(&s->ids) = q->prompt.at[i];
    for (size_t i = 0; i < y->ids.n; i++)
        *vec_push(&s->ids) = y->ids.at[i];
    if (y->basis != BASIS_RAW && sampling_bends_logits(q->sampling))
        lower_to_raw(y);
    s->ask.sampling = q->sampling;
    s->ask.raw = y->basis == BASIS_RAW || sampling_changes_nothing(q->sampling);
    return s;
}

void scoring_begin(struct scoring *s)
{
    struct err e = {0};

    if (s->reply->lacks.n > CALLS_MAX) {
        (void)err_set(&e, ERR_ENGINE_INVALID,
                      "the engine left out logprobs: %zu tokens would have to be asked for, of one "
                      "answer at most %d are",
                      s->reply->lacks.n, CALLS_MAX);
        end_scoring(s, &e);
        return;
    }
    begin_token(s);
    ask_next_token(s);
}
