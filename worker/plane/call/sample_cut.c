/* Cuts off an answer's end: ids, logprobs, versions, rows and odds. */
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "worker/plane/call/sample.h"
#include "worker/session/call/session_answer.h"
#include "worker/text/request/odds.h"

static void cut_versions(struct sample *r, size_t n)
{
    while (r->n_versions > 0 && r->versions[r->n_versions - 1].start >= n)
        r->n_versions--;
    if (r->n_versions > 0)
        r->versions[r->n_versions - 1].end =
            MIN_OF(r->versions[r->n_versions - 1].end, (uint32_t)n);
}

/* Drops the rows of the last tokens. */
static void cut_rows(struct token_rows *rows, size_t dropped)
{
    size_t row = rows->rows > 0 ? rows->block.len / rows->rows : 0;

    if (!rows->block.p)
        return;
    rows->rows -= (uint32_t)MIN_OF(dropped, (size_t)rows->rows);
    rows->block = rows->rows > 0 ? str_sub(rows->block, 0, row * rows->rows) : (struct str){0};
}

/* Drops the odds of the tokens. Alternatives are placed later, in steps. */
static void cut_odds(struct sample *r, size_t n)
{
    char *whole = r->odds_own;
    struct odds o;

    if (!r->odds.p || odds_read(r->odds, (uint32_t)r->n_ids, &o))
        return;
    o.n = (uint32_t)n;
    if (o.support.counts) {
        o.support.n_ids = 0;
        for (size_t i = 0; i < n; i++)
            o.support.n_ids += (size_t)o.support.counts[i];
    }
    r->odds_own = mem_alloc(odds_bytes(&o));
    r->odds = str_of(r->odds_own, odds_bytes(&o));
    odds_begin(&o, r->odds_own, &r->kept.ids, &r->kept.logprobs);
    if (o.n_top == 0)
        r->kept.ids = NULL;
    free(whole);
}

void sample_cut(struct sample *r, size_t n)
{
    size_t dropped = r->n_ids - n;

    cut_versions(r, n);
    for (int k = 0; k < ROWS_KINDS; k++)
        cut_rows(&r->rows[k], dropped);
    cut_odds(r, n);
    r->n_ids = n;
    r->n_lp = MIN_OF(r->n_lp, n);
    r->lp_sent = MIN_OF(r->lp_sent, n);
    r->finish = ENGINE_STOP_STRING;
    r->end_id = -1;
}
