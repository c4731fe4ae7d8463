#include "worker/engine/splice.h"

#include "common/base/vec.h"

void splice_done(struct splice *s)
{
    vec_done(&s->ids);
    vec_done(&s->logprobs);
    vec_done(&s->tops);
    vec_done(&s->spans);
    buf_done(&s->text);
    free(s->versions);
}

static void add_span(struct splice *s, struct str version, size_t start, size_t end)
{
    struct splice_span *last = s->spans.n ? &vec_last(&s->spans) : NULL;

    if (start == end)
        return;
    if (last && last->text_len == version.len &&
        (version.len == 0 || memcmp(s->text.p + last->text_at, version.p, version.len) == 0)) {
        last->end = (uint32_t)end;
        return;
    }
    *vec_push(&s->spans) =
        (struct splice_span){s->text.len, version.len, (uint32_t)start, (uint32_t)end};
    buf_add_str(&s->text, version);
}

void splice_add(struct splice *s, const struct engine_result *r)
{
    size_t base = s->ids.n, tops = r->ids.n * r->n_top;

    s->pieces++;
    if (r->ids.n == 0)
        return;
    vec_reserve(&s->ids, r->ids.n);
    memcpy(s->ids.at + base, r->ids.at, r->ids.n * sizeof(*r->ids.at));
    s->ids.n += r->ids.n;
    if (r->logprobs) {
        vec_reserve(&s->logprobs, r->ids.n);
        memcpy(s->logprobs.at + base, r->logprobs, r->ids.n * sizeof(*r->logprobs));
        s->logprobs.n += r->ids.n;
    }
    if (r->top && tops > 0) {
        vec_reserve(&s->tops, tops);
        memcpy(s->tops.at + s->tops.n, r->top, tops * sizeof(*r->top));
        s->tops.n += tops;
    }
    for (size_t i = 0; i < r->n_versions; i++)
        add_span(s, r->versions[i].version, base + r->versions[i].start, base + r->versions[i].end);
    if (r->n_versions == 0)
        add_span(s, STR(""), base, s->ids.n);
}

void splice_result(struct splice *s, struct engine_result *r)
{
    static const float nothing; /* see give_result of attempt.c */
    bool known = false;

    s->versions = mem_realloc_array(s->versions, MAX_OF(s->spans.n, 1), sizeof(*s->versions));
    for (size_t i = 0; i < s->spans.n; i++) {
        const struct splice_span *p = &s->spans.at[i];

        s->versions[i] =
            (struct engine_version){str_of(s->text.p + p->text_at, p->text_len), p->start, p->end};
        known = known || p->text_len > 0;
    }
    r->ids = (struct token_span){s->ids.at, s->ids.n};
    r->logprobs = s->ids.n == 0 ? &nothing : s->logprobs.n == s->ids.n ? s->logprobs.at : NULL;
    r->top = s->tops.n > 0 ? s->tops.at : NULL;
    r->versions = s->versions;
    r->n_versions = known ? s->spans.n : 0;
}
