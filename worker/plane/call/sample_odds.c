/* Keeps the odds of an answer that the session wants. The block is begun when the engine has
 * returned everything (sample_begin_odds). Its alternatives are placed in steps (commit_answers.c),
 * because a long answer has hundreds of thousands. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/text/request/odds.h"

/* The most alternatives that clients and sessions may request. */
enum { TOLD_MAX = SESSION_TOP_LOGPROBS_MAX };

static bool is_known(const struct engine_top *t)
{
    return t->id >= 0 && !isnan(t->logprob);
}

static int by_logprob(const void *a, const void *b)
{
    const struct engine_top *x = a, *y = b;
    bool x_known = is_known(x), y_known = is_known(y);

    if (x_known != y_known)
        return y_known ? 1 : -1;
    return !x_known ? 0 : (x->logprob < y->logprob) - (x->logprob > y->logprob);
}

static bool is_sorted(const struct engine_top *told, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (by_logprob(&told[i - 1], &told[i]) > 0)
            return false;
    return true;
}

/* Copies the best n alternatives of one token, best first. Engines list them in different
 * orders. */
static void keep_top(const struct engine_top *told, uint32_t n_told, uint32_t n, int32_t *ids,
                     float *logprobs)
{
    struct engine_top sorted[TOLD_MAX];

    CHECK(n_told <= TOLD_MAX);
    if (!is_sorted(told, n_told)) {
        memcpy(sorted, told, n_told * sizeof(*sorted));
        qsort(sorted, n_told, sizeof(*sorted), by_logprob);
        told = sorted;
    }
    for (uint32_t k = 0; k < n; k++) {
        bool known = k < n_told && is_known(&told[k]);

        ids[k] = known ? told[k].id : -1;
        logprobs[k] = known ? told[k].logprob : -INFINITY;
    }
}

size_t sample_keep_odds(struct sample *r, size_t most)
{
    uint32_t k = r->kept.n_top, told = r->told_top ? r->n_told_top : 0;
    size_t n = 0;

    for (; r->kept.ids && r->kept.at < r->n_ids && n < most; n += 1 + MAX_OF(k, told)) {
        size_t i = r->kept.at++;
        const struct engine_top *top = told ? r->told_top + i * told : NULL;

        keep_top(top, told, k, r->kept.ids + i * k, r->kept.logprobs + i * k);
    }
    return n;
}

void sample_hold_top(struct sample *r, const struct engine_result *res)
{
    size_t n = res->ids.n * res->n_top;

    if (r->told_top || !res->top || n == 0)
        return;
    r->n_told_top = res->n_top;
    if (res->top_own && *res->top_own == res->top) {
        r->told_top = *res->top_own;
        *res->top_own = NULL;
        return;
    }
    r->told_top = mem_alloc(n * sizeof(*r->told_top));
    memcpy(r->told_top, res->top, n * sizeof(*r->told_top));
}

void sample_begin_odds(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    struct odds o = {.n = (uint32_t)res->ids.n, .n_top = t->wants_top_logprobs};

    if (o.n == 0 || (o.n_top == 0 && !res->support))
        return;
    if (res->support)
        o.support = *res->support;
    r->odds_own = mem_alloc(odds_bytes(&o));
    r->odds = str_of(r->odds_own, odds_bytes(&o));
    odds_begin(&o, r->odds_own, &r->kept.ids, &r->kept.logprobs);
    r->kept.n_top = o.n_top;
    if (o.n_top > 0)
        sample_hold_top(r, res);
    else
        r->kept.ids = NULL;
}
