/* The implementation of ahead_kit.h. */
#include "ahead_kit.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"

struct session_answer ahead_answer(struct kit *k, uint32_t i, uint32_t n_ids, unsigned seed)
{
    int32_t *ids = arena_calloc(&k->arena, n_ids, sizeof(*ids));
    float *lp = arena_calloc(&k->arena, n_ids, sizeof(*lp));

    for (uint32_t j = 0; j < n_ids; j++) {
        ids[j] = (int32_t)(seed + i * 7 + j) % 250;
        lp[j] = -(float)(seed + i + j);
    }
    return (struct session_answer){
        .ids = {ids, n_ids},
        .logprobs = lp,
        .finish_reason = STR("stop"),
        .message = kit_json(k, arena_printf(&k->arena,
                                            "{\"role\":\"assistant\",\"content\":\"answer %u.%u\"}",
                                            i, seed)
                                   .p),
        .response_id = arena_printf(&k->arena, "r-%u-%u", seed, i),
    };
}

void ahead_apply(struct kit *k, struct buf *record)
{
    cr_assert_eq(session_apply(k->store, buf_str(record), &k->err), 0, "%s", k->err.text);
    k->journal[k->n_journal++] = *record;
    *record = (struct buf){0};
}

size_t ahead_parts(struct kit *k, struct session_plan *p, struct session_answer *answers,
                   uint32_t n, size_t part)
{
    struct buf record = {0};
    size_t parts = 0;

    while (session_bulk_record(p, answers, n, part, ++k->now, &record)) {
        cr_assert_lt(record.len, part + MAX_OF(part, 10 * answers[0].ids.n));
        ahead_apply(k, &record);
        parts++;
    }
    return parts;
}

void ahead_commit(struct kit *k, struct session_plan *p, struct session_answer *answers, uint32_t n)
{
    struct buf record = {0};

    cr_assert_eq(session_commit_record(p, answers, n, ++k->now, &record, &k->err), 0, "%s",
                 k->err.text);
    ahead_apply(k, &record);
}

struct record_head ahead_head(const struct kit *k, size_t record)
{
    struct record_in r = record_in_of(buf_str(&k->journal[record]));
    struct record_head h;

    cr_assert(record_read_head(&r, &h));
    return h;
}

bool ahead_is_numbers(const struct kit *k, size_t record)
{
    struct record_in r = record_in_of(buf_str(&k->journal[record]));
    struct bulk_fragment f;
    struct record_head h;

    return record_read_head(&r, &h) && h.type == RECORD_BULK && bulk_fragment_read(&r, &f) &&
           f.piece >= BULK_PAYLOADS;
}

/* A session_source. ctx: the kit. */
static int source(void *ctx, struct str id, const uint32_t *records, size_t n,
                  const struct session_reader *to, struct err *e)
{
    struct kit *k = ctx;

    (void)id;
    for (size_t i = n; i-- > 0;) { /* in any order */
        cr_assert_lt(records[i], k->n_journal);
        if (to->each(to->ctx, i, buf_str(&k->journal[records[i]]), e) != 0)
            return -1;
    }
    return 0;
}

void ahead_init(struct kit *k, const char *options)
{
    kit_init(k, options);
    session_store_evicts(k->store, true);
    session_store_source(k->store, source, k);
}

struct session_store *ahead_replayed(struct kit *k, bool lazy, struct session **ret)
{
    struct session_defaults d;
    struct session_store *st;
    bool ended;

    session_defaults_init(&d);
    st = session_store_new(NULL, &d);
    session_store_lazy(st, lazy);
    for (size_t i = 0; i < k->n_journal; i++)
        cr_assert_eq(session_apply(st, buf_str(&k->journal[i]), &k->err), 0, "record %zu: %s", i,
                     k->err.text);
    *ret = session_find(st, STR("w0-1"), &ended);
    cr_assert(*ret);
    session_free_bulks(*ret); /* as at the end of a replay */
    return st;
}

void ahead_state(struct session *s, struct buf *ret)
{
    struct err e;

    buf_clear(ret);
    cr_assert_eq(session_write_state(s, true, ret, &e), 0, "%s", e.text);
}

int ahead_recall(struct kit *k, const struct checkpoint *t)
{
    struct recall r = {.session = k->s};

    recall_path(&r, t);
    return recall_end(&r, &k->err);
}

static void same_rows(const struct checkpoint *t, enum rows_kind kind,
                      const struct token_rows *want)
{
    const struct checkpoint_rows *got = checkpoint_rows(t, kind);
    char *bytes = mem_alloc(got->len + 1);

    cr_assert_eq(got->has, want->block.p != NULL);
    cr_assert_eq(got->len, want->block.len);
    checkpoint_block_copy(t, kind, got->len, bytes);
    cr_assert(str_eq(str_of(bytes, got->len), str_of(want->block.p, want->block.len)));
    free(bytes);
    if (want->block.p) {
        cr_assert_eq(got->from, want->from);
        cr_assert_eq(got->n, want->rows);
    }
}

/* Compares with the result of a commit without fragments. */
void ahead_same(struct session *s, const struct session_answer *answers, uint32_t n, size_t first)
{
    struct err e;

    for (uint32_t i = 0; i < n; i++) {
        const struct checkpoint *t = s->forest.checkpoints.at[first + i];
        const struct session_answer *a = &answers[i];
        struct recall r = {.session = s, .rows = true};

        recall_checkpoint(&r, t);
        cr_assert_eq(recall_end(&r, &e), 0, "%s", e.text);
        cr_assert_eq(t->answer, i);
        cr_assert_eq(t->n, a->ids.n);
        cr_assert_arr_eq(checkpoint_ids(t), a->ids.at, a->ids.n * sizeof(*a->ids.at));
        cr_assert_arr_eq(checkpoint_logprobs(t), a->logprobs, a->ids.n * sizeof(float));
        cr_assert(str_eq(t->told, a->told));
        cr_assert(str_eq(t->response_id, a->response_id));
        cr_assert(str_eq(checkpoint_remarks(t)->parse_warning, a->parse_warning));
        for (int k = 0; k < ROWS_KINDS; k++)
            same_rows(t, (enum rows_kind)k, &a->rows[k]);
        cr_assert_eq(t->drifted_tokens, a->drifted_tokens);
        cr_assert(str_eq_c(t->finish_reason, "stop"));
        cr_assert_eq(t->total, t->n_context + t->n + (t->parent ? t->parent->total : 0) - t->trim);
        cr_assert(t->node && t->node->newest);
    }
}

struct token_span ahead_ids(struct kit *k, struct token_parts ids)
{
    int32_t *at = arena_alloc(&k->arena, ids.n * sizeof(*at));

    token_parts_copy(ids, 0, ids.n, at);
    return (struct token_span){at, ids.n};
}

struct token_span ahead_prompt(struct kit *k, struct session_plan *p)
{
    struct token_parts made;

    cr_assert_eq(session_prepare_render(p, NULL, &made, &k->err), 0, "%s", k->err.text);
    return ahead_ids(k, made);
}

int ahead_fragment(struct kit *k, uint64_t call, uint64_t before, uint64_t piece, const char *bytes)
{
    struct buf record = {0};
    int rc;

    record_begin(&record, RECORD_BULK, STR("w0-1"), ++k->now);
    record_put_u(&record, call);
    record_put_u(&record, before);
    record_put_u(&record, piece);
    buf_puts(&record, bytes);
    rc = session_apply(k->store, buf_str(&record), &k->err);
    buf_done(&record);
    return rc;
}

void ahead_refuses_gaps(struct kit *k)
{
    cr_assert_gt(k->n_journal, 2);
    for (size_t missing = 0; missing + 1 < k->n_journal; missing++) { /* 0: all are missing */
        struct session_defaults d;
        struct session_store *st;
        struct session *s;
        bool ended;
        int rc = 0;

        session_defaults_init(&d);
        st = session_store_new(NULL, &d);
        for (size_t i = 0; i < k->n_journal; i++)
            if (i == 0 || i + 1 == k->n_journal || (missing > 0 && i != missing))
                rc = session_apply(st, buf_str(&k->journal[i]), &k->err);
        cr_assert_eq(rc, -1, "without %zu", missing);
        s = session_find(st, STR("w0-1"), &ended);
        cr_assert_eq(s->forest.nodes.n, 0);
        cr_assert_eq(s->forest.calls.n, 0);
        cr_assert_eq(s->forest.checkpoints.n, 0);
        session_store_free(st);
    }
}

void ahead_replays(struct kit *k)
{
    struct buf live = {0}, made = {0};
    struct session_totals here, there;
    struct session_store *again;
    struct session *s;

    ahead_state(k->s, &live);
    again = ahead_replayed(k, false, &s);
    ahead_state(s, &made);
    cr_assert(str_eq(buf_str(&live), buf_str(&made)));
    cr_assert_eq(s->forest.top_id, k->s->forest.top_id);
    cr_assert_eq(s->forest.tokens, k->s->forest.tokens);
    cr_assert_eq(s->payloads.n, k->s->payloads.n);
    cr_assert_eq(s->payload_bytes, k->s->payload_bytes + k->s->payload_evicted);
    cr_assert_eq(k->s->bulks.n, 0);
    cr_assert_eq(k->s->bulk_bytes, 0);
    session_store_totals(again, &here);
    session_store_free(again);
    again = ahead_replayed(k, true, &s); /* only commits have the sums */
    session_store_totals(again, &there);
    cr_assert_eq(here.tokens, there.tokens);
    session_store_free(again);
    buf_done(&live);
    buf_done(&made);
}
