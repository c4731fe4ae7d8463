/* Writes the long values of a call's record into fragments before the record (call_bulk.h reads
 * them). If a record has more than max_bytes of them, or rows that the second copy lacks, all are
 * written there, except texts that were not prepared; the record itself, the head, then contains
 * only lengths. Which value is in which piece is decided once, because it depends on the answers
 * and not on the session. */

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/record/record.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"

struct bulk_span {
    struct str bytes;
    uint32_t piece;
    bool over; /* the bytes are not needed after they are written */
};

/* Most spans of an answer: message, told, ids, logprobs, odds, two blocks, with padding. */
enum { ANSWER_SPANS = 12 };

struct token_span plan_own_context(const struct plan *p, uint32_t common)
{
    const struct token_parts *all = &p->pub.prompt;
    struct token_span last = {0};

    if (all->n_parts > 0)
        last = all->parts[all->n_parts - 1];
    CHECK(p->n_context <= last.n && common <= p->n_context);
    if (last.n == 0)
        return last;
    return (struct token_span){last.at + last.n - p->n_context + common, p->n_context - common};
}

static size_t numbers_of(const struct session_answer *a)
{
    return a->ids.n * (sizeof(*a->ids.at) + (a->logprobs ? sizeof(*a->logprobs) : 0)) + a->odds.len;
}

size_t session_bulk_bytes(const struct session_plan *pub, const struct session_answer *answers,
                          size_t n)
{
    const struct plan *p = (const struct plan *)(const void *)pub; /* pub is the first member */
    size_t bytes = plan_new_texts(p).len + p->n_context * sizeof(int32_t);

    for (size_t i = 0; i < n; i++)
        bytes += numbers_of(&answers[i]) + answers[i].rows[ROWS_EXPERTS].block.len +
                 answers[i].rows[ROWS_INDEXER].block.len + answers[i].told.len +
                 answers[i].message_text.len;
    return bytes;
}

static void add_span(struct plan *p, uint32_t piece, struct str bytes, bool over)
{
    if (bytes.len > 0)
        p->bulk.spans[p->bulk.n_spans++] = (struct bulk_span){bytes, piece, over};
}

/* Numbers begin at a multiple of 4. */
static void add_numbers(struct plan *p, uint32_t piece, const void *at, size_t n)
{
    static const char zeros[4];

    add_span(p, piece, str_of(at, n), false);
    add_span(p, piece, str_of(zeros, payload_padded(n) - n), false);
}

static void add_texts(struct plan *p, const struct session_answer *answers, size_t n)
{
    struct str texts = plan_new_texts(p);
    size_t at = texts.len;

    if (texts.p)
        p->bulk.texts_from = p->made.messages->texts.len - texts.len;
    add_span(p, BULK_TEXTS, texts, true);
    for (size_t i = 0; i < n; i++) {
        add_span(p, BULK_TEXTS, answers[i].message_text, true);
        p->bulk.places[i].text_at = at;
        at += answers[i].message_text.len;
    }
    for (size_t i = 0; i < n; i++)
        add_span(p, BULK_TOLD, answers[i].told, true);
}

/* Reports whether a block of rows gets a piece of its own: it is long, and turns need no rows, or
 * the second copy lacks it. */
static bool is_apart(const struct plan *p, struct str block, size_t max_bytes)
{
    return block.len > (p->bulk.rows_apart ? 0 : max_bytes);
}

/* Adds an answer's spans in the order of commit_record_bulk. */
static void add_answer(struct plan *p, uint32_t piece, const struct session_answer *a,
                       size_t max_bytes)
{
    struct str experts = a->rows[ROWS_EXPERTS].block, indexer = a->rows[ROWS_INDEXER].block;

    add_numbers(p, piece, a->ids.at, a->ids.n * sizeof(*a->ids.at));
    if (a->logprobs)
        add_numbers(p, piece, a->logprobs, a->ids.n * sizeof(*a->logprobs));
    if (!is_apart(p, experts, max_bytes))
        add_numbers(p, piece, experts.p, experts.len);
    add_numbers(p, piece, a->odds.p, a->odds.len);
    if (!is_apart(p, indexer, max_bytes))
        add_numbers(p, piece, indexer.p, indexer.len);
}

/* Puts answers into one piece up to max_bytes, because a turn reads back the whole piece of its own
 * answer. */
static uint32_t add_all_numbers(struct plan *p, const struct session_answer *answers, size_t n,
                                size_t max_bytes)
{
    struct token_span context = plan_own_context(p, p->bulk.common);
    size_t bytes = context.n * sizeof(*context.at);
    uint32_t piece = BULK_PAYLOADS;

    add_numbers(p, piece, context.at, bytes);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && bytes + numbers_of(&answers[i]) > max_bytes) {
            piece++;
            bytes = 0;
        }
        p->bulk.places[i].piece = piece;
        add_answer(p, piece, &answers[i], max_bytes);
        bytes += numbers_of(&answers[i]);
    }
    return piece;
}

static void add_rows(struct plan *p, const struct session_answer *answers, size_t n,
                     size_t max_bytes, uint32_t piece)
{
    p->bulk.rows_from = piece + 1;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < ROWS_KINDS; k++) {
            struct str block = answers[i].rows[k].block;

            if (!is_apart(p, block, max_bytes))
                continue;
            p->bulk.places[i].apart[k] = ++piece;
            add_span(p, piece, block, block.len > max_bytes);
        }
}

static bool has_rows(const struct session_answer *answers, size_t n)
{
    bool has = false;

    for (size_t i = 0; i < n; i++)
        has = has || answers[i].rows[ROWS_EXPERTS].block.len > 0 ||
              answers[i].rows[ROWS_INDEXER].block.len > 0;
    return has;
}

static bool begin_bulk(struct plan *p, const struct session_answer *answers, size_t n,
                       size_t max_bytes)
{
    plan_renew(p);
    p->bulk.rows_apart = p->session->store->defaults.rows_apart && has_rows(answers, n);
    if (session_bulk_bytes(&p->pub, answers, n) <= max_bytes && !p->bulk.rows_apart)
        return false;
    plan_settle_run(p);
    p->bulk.settled = true;
    p->bulk.written = mem_zalloc(sizeof(struct call_bulk));
    p->bulk.written->call = p->pub.call;
    p->bulk.written->skips_texts = true;
    p->bulk.spans = arena_calloc(p->arena, 3 + n * ANSWER_SPANS, sizeof(*p->bulk.spans));
    p->bulk.places = arena_calloc(p->arena, n, sizeof(*p->bulk.places));
    add_texts(p, answers, n);
    add_rows(p, answers, n, max_bytes, add_all_numbers(p, answers, n, max_bytes));
    return true;
}

/* Copies the next bytes of a span, and advances. */
static void copy_span(struct plan *p, size_t most, struct buf *record)
{
    const struct bulk_span *from = &p->bulk.spans[p->bulk.span];
    struct str part = str_sub(from->bytes, p->bulk.byte, most);

    buf_add_str(record, part);
    if (from->over)
        /* freed step by step, because all at once would take a while at the end */
        mem_drop_pages(part.p, part.len);
    p->bulk.byte += part.len;
    if (p->bulk.byte < from->bytes.len)
        return;
    p->bulk.byte = 0;
    p->bulk.span++;
}

bool plan_bulk_record(struct plan *p, const struct session_answer *answers, size_t n,
                      size_t max_bytes, uint64_t now_ms, struct buf *record)
{
    enum { BESIDES = 64 };

    uint32_t piece;
    size_t from;

    if ((!p->bulk.written && !begin_bulk(p, answers, n, max_bytes)) ||
        p->bulk.span == p->bulk.n_spans)
        return false;
    piece = p->bulk.spans[p->bulk.span].piece;
    (void)buf_reserve(record, max_bytes + p->session->id.len + BESIDES);
    record_begin(record,
                 p->bulk.rows_apart && piece >= p->bulk.rows_from ? RECORD_ROWS : RECORD_BULK,
                 p->session->id, now_ms);
    record_put_u(record, p->pub.call);
    record_put_u(record, p->bulk.written->len);
    record_put_u(record, piece);
    from = record->len;
    while (p->bulk.span < p->bulk.n_spans && p->bulk.spans[p->bulk.span].piece == piece &&
           record->len - from < max_bytes)
        copy_span(p, max_bytes - (record->len - from), record);
    return true;
}
