/*
 * Everything in a piece is appended, with its positions increased by the number of ids before it.
 * Adjacent equal version spans become one. Data that only some pieces have is dropped for the whole
 * answer (sampling support, logprobs of one basis), because an incomplete answer must not look
 * complete. The prompt's cached tokens are those of the first piece; later ones have the earlier
 * pieces in their prompts.
 */
#include "worker/engine/pool/splice.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json_scan.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/text/request/odds.h"
#include "worker/text/tokens/span.h"

/* The sampling support of all pieces. */
struct splice_support {
    struct json_ints counts, ids;
    struct json_floats logprobs;
    struct odds_support whole; /* joined support of all pieces */
};

static void count_splice_bytes(struct splice *s, size_t bytes)
{
    if (s->held)
        atomic_fetch_add_explicit(s->held, bytes - s->counted, memory_order_relaxed);
    s->counted = bytes;
}

/* Returns the memory that grows with the answer. */
static size_t bytes_of(const struct splice *s)
{
    const struct splice_support *p = s->support;

    return s->experts.cap + vec_bytes(&s->ids) + vec_bytes(&s->logprobs) + vec_bytes(&s->tops) +
           vec_bytes(&s->spans) +
           (p ? vec_bytes(&p->counts) + vec_bytes(&p->ids) + vec_bytes(&p->logprobs) : 0);
}

void splice_done(struct splice *s)
{
    vec_done(&s->ids);
    vec_done(&s->logprobs);
    vec_done(&s->tops);
    vec_done(&s->spans);
    if (s->support) {
        vec_done(&s->support->counts);
        vec_done(&s->support->ids);
        vec_done(&s->support->logprobs);
        free(s->support);
        s->support = NULL;
    }
    buf_done(&s->text);
    buf_done(&s->experts);
    free(s->versions);
    count_splice_bytes(s, 0);
}

static struct str text_of(const struct splice *s, const struct splice_span *p)
{
    return str_sub(buf_str(&s->text), p->text_at, p->text_len);
}

static void add_span(struct splice *s, struct str version, size_t start, size_t end)
{
    if (start == end)
        return;
    if (s->spans.n > 0 && str_eq(text_of(s, &vec_last(&s->spans)), version)) {
        vec_last(&s->spans).end = (uint32_t)end;
        return;
    }
    *vec_push(&s->spans) =
        (struct splice_span){s->text.len, version.len, (uint32_t)start, (uint32_t)end};
    buf_add_str(&s->text, version);
}

static void add_logprobs(struct splice *s, const float *p, size_t n)
{
    vec_reserve(&s->logprobs, n);
    memcpy(s->logprobs.at + s->logprobs.n, p, n * sizeof(*p));
    s->logprobs.n += n;
}

static void add_tops(struct splice *s, const struct engine_top *p, size_t n)
{
    vec_reserve(&s->tops, n);
    memcpy(s->tops.at + s->tops.n, p, n * sizeof(*p));
    s->tops.n += n;
}

static void add_ints(struct json_ints *to, const int32_t *p, size_t n)
{
    vec_reserve(to, n);
    memcpy(to->at + to->n, p, n * sizeof(*p));
    to->n += n;
}

static void add_support(struct splice *s, const struct odds_support *p, size_t n)
{
    struct splice_support *to = s->support;

    s->support_lost = s->support_lost || !p;
    if (s->support_lost)
        return;
    if (!to)
        to = s->support = mem_zalloc(sizeof(*to));
    add_ints(&to->counts, p->counts, n);
    add_ints(&to->ids, p->ids, p->n_ids);
    if (!p->logprobs)
        return;
    vec_reserve(&to->logprobs, p->n_ids);
    memcpy(to->logprobs.at + to->logprobs.n, p->logprobs, p->n_ids * sizeof(float));
    to->logprobs.n += p->n_ids;
}

/* Returns the joined support; NULL if a piece has none. */
static const struct odds_support *support_of_all(const struct splice *s)
{
    struct splice_support *all = s->support;

    if (s->support_lost || s->ids.n == 0 || !all)
        return NULL;
    all->whole =
        (struct odds_support){all->counts.at, all->ids.at,
                              all->logprobs.n == all->ids.n ? all->logprobs.at : NULL, all->ids.n};
    return &all->whole;
}

/* Adds a piece, which has tokens. */
static void add_tokens(struct splice *s, const struct engine_result *r)
{
    size_t base = s->ids.n;

    s->basis = base == 0 || s->basis == r->basis ? r->basis : BASIS_UNKNOWN;
    s->scored += r->scored;
    vec_reserve(&s->ids, r->ids.n);
    memcpy(s->ids.at + base, r->ids.at, r->ids.n * sizeof(*r->ids.at));
    s->ids.n += r->ids.n;
    if (r->logprobs)
        add_logprobs(s, r->logprobs, r->ids.n);
    if (r->top && r->n_top > 0)
        add_tops(s, r->top, r->ids.n * r->n_top);
    add_support(s, r->support, r->ids.n);
    for (size_t i = 0; i < r->n_versions; i++)
        add_span(s, r->versions[i].version, base + r->versions[i].start, base + r->versions[i].end);
    if (r->n_versions == 0)
        add_span(s, STR(""), base, s->ids.n);
}

void splice_add(struct splice *s, const struct engine_result *r)
{
    if (s->pieces++ == 0)
        s->cached_tokens = r->cached_tokens;
    if (r->drifted)
        s->drifted = r->drifted;
    s->recomputed = s->recomputed || r->recomputed;
    if (r->ids.n == 0)
        return;
    add_tokens(s, r);
    count_splice_bytes(s, bytes_of(s));
}

void splice_add_experts(struct splice *s, const struct engine_result *r)
{
    uint32_t next = s->experts_from + s->experts_rows, had = 0;

    if (!r->experts.p || r->experts_rows == 0)
        return;
    if (s->experts_rows == 0)
        next = s->experts_from = r->experts_from;
    if (r->experts_from > next || r->experts_from + r->experts_rows < next)
        return;
    had = next - r->experts_from;
    buf_add_str(&s->experts,
                str_sub(r->experts, had * (r->experts.len / r->experts_rows), SIZE_MAX));
    s->experts_rows += r->experts_rows - had;
    count_splice_bytes(s, bytes_of(s));
}

/* Appends the last piece's rows to those of the pieces before. */
static void join_experts(struct splice *s, struct engine_result *r)
{
    uint32_t end = r->experts_from + r->experts_rows;

    if (s->experts_rows == 0 || !r->experts.p)
        return;
    splice_add_experts(s, r);
    if (s->experts_from + s->experts_rows != end)
        return;
    r->experts = buf_str(&s->experts);
    r->experts_buf = &s->experts;
    r->experts_from = s->experts_from;
    r->experts_rows = s->experts_rows;
}

void splice_result(struct splice *s, struct engine_result *r)
{
    static const float nothing; /* as in reading_result of reading.c */
    bool known = false;

    r->resumed_at = s->ids.n - r->ids.n;
    s->versions = mem_realloc_array(s->versions, MAX_OF(s->spans.n, 1), sizeof(*s->versions));
    for (size_t i = 0; i < s->spans.n; i++) {
        const struct splice_span *p = &s->spans.at[i];

        s->versions[i] = (struct engine_version){text_of(s, p), p->start, p->end};
        known = known || p->text_len > 0;
    }
    r->ids = (struct token_span){s->ids.at, s->ids.n};
    r->logprobs = s->ids.n == 0 ? &nothing : s->logprobs.n == s->ids.n ? s->logprobs.at : NULL;
    if (s->ids.n > 0)
        r->basis = s->basis;
    r->scored = s->scored;
    r->drifted = s->drifted;
    r->recomputed = s->recomputed;
    join_experts(s, r);
    r->support = support_of_all(s);
    r->cached_tokens = s->cached_tokens;
    r->top = s->tops.n > 0 ? s->tops.at : NULL;
    r->ids_own = &s->ids.at;
    r->logprobs_own = &s->logprobs.at;
    r->top_own = &s->tops.at;
    r->versions = s->versions;
    r->n_versions = known ? s->spans.n : 0;
}
