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
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/score_question.h"
#include "worker/engine/wire/wire_reply.h"

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
    token_parts_copy(q->prompt, 0, q->prompt.n, s->ids.at);
    s->ids.n = q->prompt.n;
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
