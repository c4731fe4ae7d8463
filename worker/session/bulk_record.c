/* The long bulk of a record (ids, logprobs, odds and short blocks of rows, in the layout of its
 * payload) -> records of its parts, before it (bulk_ahead.h reads them). */
#include <string.h>

#include "common/base/buf.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/commit_record.h"
#include "worker/session/plan.h"
#include "worker/session/record.h"
#include "worker/session/session_answer.h"
#include "worker/session/store.h"

/* Counts the bulk, and copies what of it lies within [from, to). */
struct bulk_cut {
    size_t from, to, at;
    struct buf *out; /* NULL: only counts */
};

/* `n` bytes and what fills them up to a multiple of 4. */
static void piece(struct bulk_cut *c, const void *p, size_t n)
{
    static const char zeros[4];

    size_t begin = c->at, bytes = begin + n, end = begin + payload_padded(n);
    size_t from = MAX_OF(c->from, begin), to = MIN_OF(c->to, end);

    c->at = end;
    if (!c->out || from >= to)
        return;
    if (from < bytes)
        buf_add(c->out, (const char *)p + (from - begin), MIN_OF(to, bytes) - from);
    if (to > bytes)
        buf_add(c->out, zeros, to - MAX_OF(from, bytes));
}

static void block(struct bulk_cut *c, const struct plan *p, struct str s)
{
    if (!plan_block_ahead(p, s))
        piece(c, s.p, s.len);
}

/* In the order of commit_record_bulk. */
static void answer(struct bulk_cut *c, const struct plan *p, const struct session_answer *a)
{
    piece(c, a->ids.at, a->ids.n * sizeof(*a->ids.at));
    if (a->logprobs)
        piece(c, a->logprobs, a->ids.n * sizeof(*a->logprobs));
    block(c, p, a->rows[ROWS_EXPERTS].block);
    piece(c, a->odds.p, a->odds.len);
    block(c, p, a->rows[ROWS_INDEXER].block);
}

struct token_span plan_own_context(const struct plan *p, uint32_t common)
{
    struct token_span all = p->pub.prompt;

    return (struct token_span){all.at + all.n - p->n_context + common, p->n_context - common};
}

static void walk(struct bulk_cut *c, const struct plan *p, const struct bulk_of *of)
{
    struct token_span context = plan_own_context(p, of->common);

    if (of->context)
        piece(c, context.at, context.n * sizeof(*context.at));
    for (size_t i = 0; i < of->n; i++)
        answer(c, p, &of->answers[i]);
}

size_t plan_bulk_bytes(const struct plan *p, const struct bulk_of *of)
{
    struct bulk_cut c = {0};

    walk(&c, p, of);
    return c.at;
}

bool plan_bulk_record(struct plan *p, const struct bulk_of *of, size_t max_bytes, uint64_t now_ms,
                      struct buf *record)
{
    enum { BESIDES = 64 };

    struct record_head h = {RECORD_BLOCKS, RECORD_VERSION_BULK, p->session->id, now_ms};
    struct bulk_cut c = {.from = p->bulk.at, .to = p->bulk.at + max_bytes, .out = record};
    size_t before;

    if (p->bulk.ahead && p->bulk.at == p->bulk.len)
        return false;
    if (!p->bulk.ahead) {
        p->bulk.len = plan_bulk_bytes(p, of);
        if (p->bulk.len <= max_bytes)
            return false;
        p->bulk.ahead = true;
    }
    (void)buf_reserve(record, max_bytes + p->session->id.len + BESIDES);
    record_put_head(record, &h);
    record_put_u(record, p->pub.call);
    record_put_u(record, p->blocks.ahead);
    record_put_u(record, of->first);
    record_put_u(record, BLOCK_BULK);
    before = record->len;
    walk(&c, p, of);
    p->blocks.ahead += record->len - before;
    p->bulk.at += record->len - before;
    return true;
}
