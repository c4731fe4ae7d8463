/*
 * An event has a row for each of its tokens: the ids that it was sampled from. `rows` has them one
 * after the other, row_counts their lengths. support_take checks the event as a whole, skips rows
 * of known tokens (a cumulative stream repeats them), and keeps the others.
 *
 * A sampled token must be in its own row, else the rows belong to something else. Its logprob over
 * the row replaces the one in the answer, because it is that of the distribution that was sampled
 * from.
 */
#include "worker/engine/wire/support.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/engine/wire/entries.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/text/request/odds.h"

void support_done(struct support *s)
{
    free(s->told);
    s->told = NULL;
    vec_done(&s->rows);
    vec_done(&s->row_counts);
    vec_done(&s->row_logprobs);
    vec_done(&s->sampled);
    vec_done(&s->ids);
    vec_done(&s->counts);
    vec_done(&s->logprobs);
}

size_t support_bytes(const struct support *s)
{
    return vec_bytes(&s->rows) + vec_bytes(&s->row_counts) + vec_bytes(&s->row_logprobs) +
           vec_bytes(&s->sampled) + vec_bytes(&s->ids) + vec_bytes(&s->counts) +
           vec_bytes(&s->logprobs);
}

void support_begin_event(struct support *s)
{
    vec_clear(&s->rows);
    vec_clear(&s->row_counts);
    vec_clear(&s->row_logprobs);
    vec_clear(&s->sampled);
}

/* Checks the event's rows as a whole. Returns 1 if no row is usable. */
static int check_event(const struct support *s, const struct support_tokens *t, struct err *e)
{
    size_t rows = s->row_counts.n;

    if (rows == 0 || (t->cut && rows < t->from + t->n))
        return 1;
    if (!t->cut && rows != t->seen)
        return reply_invalid(e, "the numbers of tokens and of their sampling supports differ");
    if (s->row_logprobs.n > 0 && s->row_logprobs.n != s->rows.n)
        return reply_invalid(e, "the ids and logprobs of its sampling support differ in number");
    if (s->sampled.n > 0 && s->sampled.n != rows)
        return reply_invalid(e, "the numbers of tokens and of their sampling logprobs differ");
    return 0;
}

/* Returns the index of the sampled token in its row, or SIZE_MAX. */
static size_t index_in_row(const int32_t *row, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (row[i] == id)
            return i;
    return SIZE_MAX;
}

/* Returns the logprob over the support of token i, whose row begins at `at` and has the token at
 * `place`. */
static float own_logprob(const struct support *s, const struct support_tokens *t, size_t i,
                         size_t at, size_t place)
{
    if (s->sampled.n > 0)
        return s->sampled.at[t->from + i];
    return s->row_logprobs.n > 0 ? s->row_logprobs.at[at + place] : t->logprobs[i];
}

/* Appends the n ids of the row at `at`. */
static void keep_row(struct support *s, size_t at, size_t n)
{
    *vec_push(&s->counts) = (int32_t)n;
    vec_reserve(&s->ids, n);
    memcpy(s->ids.at + s->ids.n, s->rows.at + at, n * sizeof(*s->ids.at));
    s->ids.n += n;
    if (s->row_logprobs.n == 0)
        return;
    vec_reserve(&s->logprobs, n);
    memcpy(s->logprobs.at + s->logprobs.n, s->row_logprobs.at + at, n * sizeof(float));
    s->logprobs.n += n;
}

/* Checks the n ids at `at` and their logprobs, if any. */
static int check_row(struct support *s, size_t at, size_t n, struct err *e)
{
    for (size_t i = at; i < at + n; i++) {
        float logprob = s->row_logprobs.n > 0 ? s->row_logprobs.at[i] : 0;

        s->most_id = MAX_OF(s->most_id, s->rows.at[i]);
        if (logprob_fault(logprob))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: a logprob of its sampling support is "
                           "%s (id %d, logprob %g)",
                           logprob > 0 ? "above 0" : "null or out of range", s->rows.at[i],
                           (double)logprob);
    }
    return 0;
}

/* Reads one token's row, which begins at `at`. Returns 1 if it has none. */
static int read_row(struct support *s, const struct support_tokens *t, size_t i, size_t at,
                    struct err *e)
{
    size_t n = (size_t)s->row_counts.at[t->from + i];
    size_t place;

    if (n == 0)
        return 1;
    place = index_in_row(s->rows.at + at, n, t->ids[i]);
    if (place == SIZE_MAX)
        return reply_invalid(e, "a token is not in its own sampling support");
    if (check_row(s, at, n, e) < 0)
        return -1;
    t->logprobs[i] = own_logprob(s, t, i, at, place);
    if (!isfinite(t->logprobs[i]))
        return reply_invalid(e, "a logprob of its sampling support is null or out of range");
    if (logprob_fault(t->logprobs[i]))
        return reply_invalid(e, logprob_fault(t->logprobs[i]));
    s->own += s->sampled.n > 0 || s->row_logprobs.n > 0;
    keep_row(s, at, n);
    return 0;
}

int support_take(struct support *s, const struct support_tokens *t, struct err *e)
{
    size_t at = 0;
    int rc;

    if (!s->wanted || t->n == 0)
        return 0;
    rc = check_event(s, t, e);
    for (size_t i = 0; rc == 0 && i < t->from; i++)
        at += (size_t)s->row_counts.at[i];
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        rc = read_row(s, t, i, at, e);
        at += (size_t)s->row_counts.at[t->from + i];
    }
    s->lost = s->lost || rc > 0;
    return rc < 0 ? -1 : 0;
}

bool support_known(const struct support *s, size_t n)
{
    return s->wanted && !s->lost && n > 0 && s->counts.n == n;
}

const struct odds_support *support_of(struct support *s, size_t n)
{
    if (!support_known(s, n))
        return NULL;
    if (!s->told)
        s->told = mem_alloc(sizeof(*s->told));
    *s->told = (struct odds_support){s->counts.at, s->ids.at,
                                     s->logprobs.n == s->ids.n ? s->logprobs.at : NULL, s->ids.n};
    return s->told;
}

bool support_decides(const struct support *s, size_t n)
{
    return n > 0 && s->own == n;
}
