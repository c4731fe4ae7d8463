/* fuzz: rg_worker. Answers of scorers (prompt_scores.h), whole and in pieces: what is taken for
 * good holds, and the cuts do not matter. */
#include <math.h>

#include "common/base/check.h"
#include "worker/engine/wire/prompt_scores.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(struct prompt_scores *p, struct str body, size_t piece)
{
    struct err e = {0};
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < body.len; at += piece)
        rc = prompt_scores_feed(p, str_sub(body, at, piece), &e);
    if (rc == 0)
        rc = prompt_scores_end(p, &e);
    CHECK(rc == 0 || (e.kind == ERR_ENGINE_INVALID && e.text[0]));
    return rc;
}

static void check(const struct prompt_scores *p)
{
    CHECK(p->logprobs.n == p->ids.n);
    CHECK(p->top_ids.n == p->top_logprobs.n);
    CHECK(p->top_k == 0 || p->top_ids.n == p->ids.n * p->top_k);
    for (size_t i = 0; i < p->logprobs.n; i++)
        CHECK(isfinite(p->logprobs.at[i]));
    for (size_t i = 0; i < p->top_ids.n; i++)
        CHECK(p->top_ids.at[i] >= -1 && !isnan(p->top_logprobs.at[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t ids[] = {5, 6, 7, 8};
    struct prompt_scores whole, cut;
    enum scorer_kind kind;
    struct token_span span;
    struct str body;
    int rc;

    if (size < 3)
        return 0;
    kind = data[0] & 1 ? SCORER_VLLM : SCORER_SGLANG;
    span = (struct token_span){ids, data[0] >> 1 & 3};
    body = str_of((const char *)data + 3, size - 3);
    prompt_scores_init(&whole, kind, span, data[1] & 3);
    prompt_scores_init(&cut, kind, span, data[1] & 3);
    rc = run(&whole, body, MAX_OF(body.len, (size_t)1));
    CHECK(run(&cut, body, data[2] % 16 + 1) == rc);
    if (rc == 0)
        check(&whole);
    prompt_scores_done(&whole);
    prompt_scores_done(&cut);
    return 0;
}
