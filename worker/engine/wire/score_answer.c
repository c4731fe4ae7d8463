#include "worker/engine/wire/score_answer.h"

#include <math.h>

#include "common/base/vec.h"
#include "worker/engine/wire/entries.h"
#include "worker/engine/wire/scoring.h"
#include "worker/engine/wire/wire_reply.h"

/* Limits for the bytes of an answer. It repeats its prompt as text, and has id, text, bytes and
 * logprob of each alternative, 75 bytes on average in real vocabularies. */
enum { BASE_MAX = 1 << 20, PROMPT_TOKEN_MAX = 64, TOP_MAX = 256 };

enum { TOPS_SPARE = 1024 }; /* space for alternatives that were not requested */

static const struct score_item none = {-1, NAN};

/* Ends the present alternative. */
static void end_top(struct score_answer *a)
{
    if (!a->in_top)
        return;
    a->in_top = false;
    if (a->top.id == a->ask->id && isnan(a->own_top))
        a->own_top = a->top.logprob;
    if (a->tops.n <= (size_t)a->ask->n_probs + TOPS_SPARE)
        *vec_push(&a->tops) = a->top.logprob;
}

static void on_scalar(void *ctx, int id, const struct json_scan *s, struct str key)
{
    struct score_answer *a = ctx;

    (void)key;
    if (id == SCORE_FIELD_TOKEN) {
        a->n_tokens++;
        a->token = reply_int(s);
        return;
    }
    if (id == SCORE_FIELD_SEED) {
        a->seed = reply_int(s);
        return;
    }
    if (a->n_entries != 1)
        return;
    if (id == SCORE_FIELD_ID)
        a->entry.id = reply_int(s);
    else if (id == SCORE_FIELD_LOGPROB)
        a->entry.logprob = reply_float(s);
    else if (id == SCORE_FIELD_TOP_ID)
        a->top.id = reply_int(s);
    else
        a->top.logprob = reply_float(s);
}

/* Never called: such tables have no bulk values. */
static void on_target(void *ctx, int id, struct field_target *t)
{
    (void)ctx;
    (void)id;
    (void)t;
}

static void on_mark(void *ctx, int id, size_t items, bool null)
{
    struct score_answer *a = ctx;

    (void)items;
    (void)null;
    end_top(a);
    if (id == SCORE_FIELD_ENTRY)
        a->n_entries++;
    a->in_top = id == SCORE_FIELD_TOP && a->n_entries == 1;
    a->top = none;
}

static const struct field_sink sink = {on_scalar, on_target, on_mark};

void score_answer_begin(struct score_answer *a, const struct score_ask *ask,
                        const struct field *table, size_t n)
{
    score_answer_done(a);
    *a = (struct score_answer){
        .ask = ask,
        .max_bytes = BASE_MAX + ask->prompt.n * PROMPT_TOKEN_MAX + (size_t)ask->n_probs * TOP_MAX,
        .token = -1,
        .seed = -1,
        .entry = none,
        .own_top = NAN,
    };
    fields_init(&a->fields, table, n, &sink, a);
}

void score_answer_done(struct score_answer *a)
{
    fields_done(&a->fields);
    vec_done(&a->tops);
}

int score_answer_feed(struct score_answer *a, struct str bytes, struct err *e)
{
    int rc = 0;

    a->bytes += bytes.len;
    if (a->bytes > a->max_bytes)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer about a left-out logprob has more than %zu bytes",
                       a->max_bytes);
    if (a->complete)
        return str_trim(bytes).len == 0
                   ? 0
                   : err_set(e, ERR_ENGINE_INVALID,
                             "the engine's answer about a left-out logprob is invalid: bytes "
                             "behind its JSON");
    rc = fields_feed(&a->fields, bytes, e);
    if (rc < 0) {
        struct err why = *e;

        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer about a left-out logprob is invalid: %s", why.text);
    }
    a->complete = rc > 0;
    if (a->complete)
        end_top(a);
    return 0;
}

/* Uses the entry's logprob if the token was sampled, else that of an alternative. */
int score_answer_own(const struct score_answer *a, float *ret)
{
    float own = a->entry.id == a->ask->id ? a->entry.logprob : a->own_top;

    if (!a->complete || a->n_tokens != 1 || a->token != a->ask->force ||
        a->tops.n > (size_t)a->ask->n_probs + TOPS_SPARE)
        return SCORE_NONE;
    if (a->tops.n == 0 || isnan(own))
        return SCORE_WIDER;
    *ret = own;
    return logprob_fault(own) ? SCORE_NONE : SCORE_FOUND;
}
