/*
 * Special tokens cut both sequences into runs of plain ids. Both sequences must agree on them,
 * because a template writes them and a tokenizer never joins them with text:
 *
 *   true ids    <user> hello <end> <asst> four  <end>
 *   rendered    <user> hello <end> <asst> fo ur <end>     one drift, in an assistant's run
 *
 * If the numbers of runs differ, runs cannot be paired, and that is reported as the only drift.
 * Otherwise each run and each pair of special tokens that differ counts as one. The mask says
 * whether the model wrote the run.
 */
#include "worker/export/build/drift.h"

#include <string.h>

#include "common/base/vec.h"
#include "worker/export/build/drift_audit.h"
#include "worker/text/model/model.h"

const char *drift_kind_name(enum drift_kind k)
{
    static const char *const names[] = {"special_token_count", "special_token_type",
                                        "non_assistant_text", "assistant_text"};

    return names[k];
}

/* Returns the next run of plain ids at or after *at. Moves *at to its end: the special token or the
 * end. */
static struct token_span next_text(const struct model *m, struct token_span s, size_t *at)
{
    size_t from = *at;

    while (*at < s.n && !model_is_special(m, s.at[*at]))
        ++*at;
    return (struct token_span){s.at + from, *at - from};
}

static bool same_ids(struct token_span a, struct token_span b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n * sizeof(*a.at)) == 0);
}

/* Records the ids that differ, if the caller wants them. got begins at `from` of the true ids. */
static void record_drift_place(struct drift *d, enum drift_kind kind, size_t from,
                               struct token_span got, struct token_span want)
{
    size_t head = 0, tail = 0, least = MIN_OF(got.n, want.n);
    struct drift_place *place;

    if (!d->places || d->places->n == DRIFT_PLACES_MAX)
        return;
    while (head < least && got.at[head] == want.at[head])
        head++;
    while (tail < least - head && got.at[got.n - 1 - tail] == want.at[want.n - 1 - tail])
        tail++;
    place = &d->places->at[d->places->n++];
    *place = (struct drift_place){.kind = kind,
                                  .position = (uint32_t)(from + head),
                                  .n = (uint32_t)(got.n - head - tail),
                                  .n_wanted = (uint32_t)(want.n - head - tail)};
    for (size_t i = 0; i < MIN_OF(place->n_wanted, (size_t)DRIFT_WANTED_MAX); i++)
        place->wanted[i] = want.at[head + i];
}

/* Counts one difference at `position`. `got`, which begins at `from`, and `want` are its ids. */
static void count_drift(struct drift *d, enum drift_kind kind, size_t position,
                        struct token_span got, struct token_span want)
{
    if (d->count++ == 0) {
        d->first = kind;
        d->position = (uint32_t)position;
    }
    record_drift_place(d, kind, kind == DRIFT_SPECIAL_TOKEN_COUNT ? 0 : position, got, want);
}

static size_t count_specials(const struct model *m, struct token_span s)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += model_is_special(m, s.at[i]);
    return n;
}

/* Reports whether one of n bytes from mask[from] on is set. */
static bool any_set(const uint8_t *mask, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mask[from + i])
            return true;
    return false;
}

/* Compares both sequences run by run, and counts each difference. */
static void compare_runs(const struct model *m, struct token_span got, struct token_span want,
                         const uint8_t *mask, struct drift *d)
{
    size_t i = 0, k = 0;

    if (count_specials(m, got) != count_specials(m, want)) {
        size_t at = 0;

        while (at < got.n && at < want.n && got.at[at] == want.at[at])
            at++;
        count_drift(d, DRIFT_SPECIAL_TOKEN_COUNT, at, got, want);
        return;
    }
    for (;;) {
        size_t from = i;
        struct token_span a = next_text(m, got, &i), b = next_text(m, want, &k);

        if (!same_ids(a, b))
            count_drift(d,
                        any_set(mask, from, a.n) ? DRIFT_ASSISTANT_TEXT : DRIFT_NON_ASSISTANT_TEXT,
                        from, a, b);
        if (i == got.n || k == want.n)
            return;
        if (got.at[i] != want.at[k])
            count_drift(d, DRIFT_SPECIAL_TOKEN_TYPE, i, (struct token_span){got.at + i, 1},
                        (struct token_span){want.at + k, 1});
        i++;
        k++;
    }
}

void drift_start(struct drift_audit *a, const struct model *m, struct model_scratch *scratch,
                 const struct chat *chat)
{
    struct err e;

    *a = (struct drift_audit){.model = m, .scratch = scratch};
    a->failed = model_canonical_text(m, scratch, chat, &a->text, &e) != 0;
}

bool drift_next(struct drift_audit *a)
{
    struct err e;
    int rc;

    if (a->failed)
        return false;
    rc = model_canonical_step(a->scratch, buf_str(&a->text), &a->at, &a->canonical, &e);
    a->failed = rc < 0;
    return rc == 0;
}

void drift_finish(struct drift_audit *a, struct token_span ids, const uint8_t *mask,
                  struct drift *ret)
{
    const struct model *m = a->model;
    struct token_span want = {a->canonical.at, a->canonical.n};

    *ret = (struct drift){.audited = !a->failed, .places = ret->places};
    if (!a->failed) {
        /* The true ids end with the model's last token. Ids that the template adds after it (its
         * own close, a line feed) are not a drift. */
        while (want.n > ids.n && !model_is_special(m, want.at[want.n - 1]))
            want.n--;
        if (want.n == ids.n + 1 && (ids.n == 0 || !model_is_special(m, ids.at[ids.n - 1])))
            want.n--;
        if (!same_ids(ids, want))
            compare_runs(m, ids, want, mask, ret);
    }
    drift_drop(a);
}

void drift_drop(struct drift_audit *a)
{
    buf_done(&a->text);
    vec_done(&a->canonical);
    *a = (struct drift_audit){0};
}
