/* The long bulk of a record (context, ids, logprobs, odds) that is recorded before it, in parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead_kit.h"
#include "testing.h"
#include "worker/request/odds.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/payload.h"
#include "worker/session/recall.h"
#include "worker/session/record_parts.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"
#include "worker/session/session_call.h"
#include "worker/session/session_totals.h"
#include "worker/session/store.h"

enum { PART = 8 << 10, IDS = 1500, N_TOP = 3 };

/* With a block of 103 bytes for rows before the odds, of 9 behind them. */
static void add_blocks(struct kit *k, struct session_answer *a)
{
    struct odds o = {.n = (uint32_t)a->ids.n, .n_top = N_TOP};
    char *block = arena_alloc(&k->arena, odds_bytes(&o)), *rows = arena_alloc(&k->arena, 103);
    float *logprobs;
    int32_t *ids;

    odds_begin(&o, block, &ids, &logprobs);
    for (size_t i = 0; i < (size_t)N_TOP * a->ids.n; i++) {
        ids[i] = (int32_t)i % 255;
        logprobs[i] = -(float)i;
    }
    for (int i = 0; i < 103; i++)
        rows[i] = (char)(i * 7);
    a->odds = str_of(block, odds_bytes(&o));
    a->rows[ROWS_EXPERTS] = (struct token_rows){str_of(rows, 103), 0, 103, 1, 1};
    a->rows[ROWS_INDEXER] = (struct token_rows){STR("nine rows"), 0, 9, 1, 1};
}

static struct session_answer *answers_of(struct kit *k, uint32_t n, uint32_t n_ids, unsigned seed)
{
    struct session_answer *all = arena_calloc(&k->arena, n, sizeof(*all));

    for (uint32_t i = 0; i < n; i++) {
        all[i] = ahead_answer(k, i, n_ids, seed);
        add_blocks(k, &all[i]);
    }
    return all;
}

/* A user message of n bytes, which are as many tokens, as a list's text; and what stands behind. */
static const char *long_text(struct kit *k, size_t n, const char *behind)
{
    char *text = arena_alloc(&k->arena, n + 1);

    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + i % 23);
    text[n] = 0;
    return arena_printf(&k->arena, "[{\"role\":\"user\",\"content\":\"%s\"}%s]", text, behind).p;
}

static size_t turn(struct kit *k, const char *messages, uint32_t n, uint32_t n_ids, unsigned seed)
{
    struct session_answer *answers = answers_of(k, n, n_ids, seed);
    struct session_plan *p = kit_ask(k, messages, NULL);
    size_t parts;

    cr_assert(p, "%s", k->err.text);
    parts = ahead_parts(k, p, answers, n, PART);
    ahead_commit(k, p, answers, n);
    return parts;
}

static void same_odds(const struct kit *k, size_t checkpoint)
{
    const struct checkpoint *t = k->s->forest.checkpoints.at[checkpoint];
    struct odds o;

    cr_assert(checkpoint_odds(t, &o));
    cr_assert_eq(o.n_top, N_TOP);
    for (size_t i = 0; i < (size_t)N_TOP * o.n; i++) {
        cr_assert_eq(o.top_ids[i], (int32_t)i % 255);
        cr_assert_float_eq(o.top_logprobs[i], -(float)i, 0);
    }
}

/* The ids on the path are those of a session that was recorded without parts. */
static void same_path(const struct checkpoint *a, const struct checkpoint *b)
{
    int32_t *x = calloc(a->total, sizeof(*x)), *y = calloc(b->total, sizeof(*y));

    cr_assert_eq(a->total, b->total);
    checkpoint_copy(a, x);
    checkpoint_copy(b, y);
    cr_assert_arr_eq(x, y, a->total * sizeof(*x));
    cr_assert_eq(a->sent, b->sent);
    free(x);
    free(y);
}

TEST(bulk_ahead, what_is_recorded_in_parts_is_what_was_answered)
{
    struct kit k;
    size_t parts;

    ahead_init(&k, NULL);
    parts = turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_eq(parts, (k.s->payload_bytes + PART - 1) / PART);
    for (size_t i = 1; i <= parts + 1; i++)
        cr_assert_eq(ahead_head(&k, i).version, RECORD_VERSION_BULK);
    cr_assert_lt(k.journal[parts + 1].len, 5600, "it has the text, and none of the bulk");
    ahead_same(k.s, answers_of(&k, 1, IDS, 1), 1, 0);
    same_odds(&k, 0);
    ahead_replays(&k);
    cr_assert_geq(kit_turn(&k,
                           long_text(&k, 5000,
                                     ",{\"role\":\"assistant\",\"content\":\"answer 0.1\"},"
                                     "{\"role\":\"user\",\"content\":\"b\"}"),
                           "B"),
                  0);
    cr_assert_eq(k.s->forest.checkpoints.at[1]->parent, k.s->forest.checkpoints.at[0]);
    ahead_replays(&k);
    kit_done(&k);
}

/* A session with parts and one without have the same state, but for times; at whatever byte the
 * parts end. */
TEST(bulk_ahead, parts_make_the_same_session)
{
    static const size_t sizes[] = {1 << 10, PART, 4001, 33333};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct kit k, l;
        struct session_plan *p;
        struct buf one = {0}, other = {0};

        ahead_init(&k, NULL);
        ahead_init(&l, NULL);
        p = kit_ask(&k, long_text(&k, 5000, ""), NULL);
        k.now = l.now = 5000;
        ahead_commit(&k, p, answers_of(&k, 2, IDS, 1), 2);
        cr_assert_eq(ahead_head(&k, 1).version, 2);
        p = kit_ask(&l, long_text(&l, 5000, ""), NULL);
        cr_assert_gt(ahead_parts(&l, p, answers_of(&l, 2, IDS, 1), 2, sizes[i]), 1);
        l.now = 5000;
        ahead_commit(&l, p, answers_of(&l, 2, IDS, 1), 2);
        ahead_state(k.s, &one);
        ahead_state(l.s, &other);
        cr_assert(str_eq(buf_str(&one), buf_str(&other)));
        cr_assert_eq(k.s->forest.tokens, l.s->forest.tokens);
        cr_assert_eq(k.s->forest.top_id, l.s->forest.top_id);
        cr_assert_eq(k.s->payload_bytes, l.s->payload_bytes);
        for (size_t j = 0; j < 2; j++) {
            same_path(l.s->forest.checkpoints.at[j], k.s->forest.checkpoints.at[j]);
            same_odds(&l, j);
        }
        ahead_replays(&l);
        buf_done(&one);
        buf_done(&other);
        kit_done(&k);
        kit_done(&l);
    }
}

/* Large answers are records of their own, each behind its bulk; the context alone is the commit's.
 */
TEST(bulk_ahead, several_answers_have_their_own)
{
    struct kit k;

    ahead_init(&k, NULL);
    (void)turn(&k, long_text(&k, 5000, ""), 3, IDS, 1);
    cr_assert_eq(k.s->payloads.n, 1 + 3);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_lt(k.journal[i].len, PART + 5600);
    ahead_same(k.s, answers_of(&k, 3, IDS, 1), 3, 0);
    ahead_replays(&k);
    kit_done(&k);
}

/* Some long and some short ones: with and without a bulk before them. */
TEST(bulk_ahead, answers_with_and_without_stand_in_one_call)
{
    struct kit k;
    struct session_answer *a;
    struct session_plan *p;

    ahead_init(&k, NULL);
    a = answers_of(&k, 4, IDS, 1);
    a[0] = answers_of(&k, 1, 50, 5)[0];
    a[2] = answers_of(&k, 1, 60, 6)[0];
    p = kit_ask(&k, long_text(&k, 10, ""), NULL);
    (void)ahead_parts(&k, p, a, 4, PART);
    ahead_commit(&k, p, a, 4);
    for (size_t i = 0; i < k.n_journal; i++) {
        struct record_parts said;

        session_record_parts(buf_str(&k.journal[i]), &said);
        cr_expect_eq(said.behind_answers, said.sense == PARTS_ONE && said.kind == PART_BLOCKS);
    }
    ahead_same(k.s, a, 4, 0);
    ahead_replays(&k);
    kit_done(&k);
}

/* Calls whose contexts begin alike: each shares what it can, or copies it where runs stand on too
 * many others. */
TEST(bulk_ahead, shared_contexts_are_not_in_the_parts)
{
    struct kit k, l;
    size_t first = 0, parts = 0;

    ahead_init(&k, NULL);
    ahead_init(&l, NULL);
    for (unsigned i = 0; i < 20; i++) {
        char behind[64];

        (void)snprintf(behind, sizeof(behind), ",{\"role\":\"user\",\"content\":\"%u\"}", i);
        parts = turn(&k, long_text(&k, 5000, behind), 1, IDS, i);
        if (i == 0)
            first = parts;
        ahead_commit(&l, kit_ask(&l, long_text(&l, 5000, behind), NULL), answers_of(&l, 1, IDS, i),
                     1);
        same_path(k.s->forest.checkpoints.at[i], l.s->forest.checkpoints.at[i]);
        cr_assert(i == 0 || parts < first);
    }
    cr_assert_eq(k.s->payload_bytes, l.s->payload_bytes);
    ahead_replays(&k);
    kit_done(&k);
    kit_done(&l);
}

TEST(bulk_ahead, it_leaves_memory_and_comes_back)
{
    struct kit k;
    struct checkpoint *t;

    ahead_init(&k, NULL);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    t = k.s->forest.checkpoints.at[0];
    session_pin(k.s);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 1);
        cr_assert_eq(k.s->payload_bytes, 0);
        cr_assert_eq(ahead_recall(&k, t), 0);
        cr_assert_eq(k.s->payload_evicted, 0);
        ahead_same(k.s, answers_of(&k, 1, IDS, 1), 1, 0);
        same_odds(&k, 0);
    }
    session_unpin(k.store, k.s);
    kit_done(&k);
}

/* Megabytes, which lie in pages of their own, with a text of megabytes. */
TEST(bulk_ahead, a_very_long_one_is_like_others)
{
    enum { MANY = 700000, LARGE_PART = 256 << 10, TOLD = 6 << 20 };

    struct kit k;
    struct session_answer *a;
    struct session_plan *p;

    ahead_init(&k, NULL);
    a = answers_of(&k, 1, MANY, 1);
    a->told = str_of(arena_calloc(&k.arena, TOLD, 1), TOLD);
    memset((char *)(uintptr_t)a->told.p, 't', TOLD);
    p = kit_ask(&k, long_text(&k, 10, ""), NULL);
    cr_assert_gt(ahead_parts(&k, p, a, 1, LARGE_PART), (TOLD + 8 * MANY) / LARGE_PART);
    memset((char *)(uintptr_t)a->told.p, 't', TOLD); /* it has been read */
    ahead_commit(&k, p, a, 1);
    cr_assert_gt(k.s->payload_bytes, 4 << 20);
    ahead_same(k.s, a, 1, 0);
    session_pin(k.s);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 1);
    ahead_same(k.s, a, 1, 0);
    same_odds(&k, 0);
    session_unpin(k.store, k.s);
    ahead_replays(&k);
    kit_done(&k);
}

/* Nothing is taken for what it is not, and a later try finds it. */
TEST(bulk_ahead, a_part_that_is_another_is_not_taken)
{
    struct kit k;
    struct checkpoint *t;
    struct buf good;

    ahead_init(&k, NULL);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    t = k.s->forest.checkpoints.at[0];
    session_pin(k.s);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 1);
    good = k.journal[2];
    for (size_t other = 0; other < k.n_journal;
         other += k.n_journal - 2) { /* no part, and a last one */
        k.journal[2] = k.journal[other];
        cr_assert_eq(ahead_recall(&k, t), -1, "record %zu", other);
        cr_assert_not(t->payload->bytes);
        cr_assert_eq(k.s->payload_bytes, 0);
        k.journal[2] = good;
    }
    cr_assert_eq(ahead_recall(&k, t), 0);
    ahead_same(k.s, answers_of(&k, 1, IDS, 1), 1, 0);
    session_unpin(k.store, k.s);
    kit_done(&k);
}

TEST(bulk_ahead, a_call_that_fails_leaves_nothing)
{
    struct kit k;
    struct session_totals before, after;
    struct session_plan *p;
    size_t bytes;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, long_text(&k, 10, ""), "A"), 0);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, long_text(&k, 5000, ""), NULL);
    bytes = PART * (ahead_parts(&k, p, answers_of(&k, 1, IDS, 1), 1, PART) - 1);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, bytes);
    session_release(k.store, p);
    session_store_totals(k.store, &after);
    cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
    cr_assert_eq(k.s->answers_bytes, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 2);
    ahead_same(k.s, answers_of(&k, 1, IDS, 2), 1, 1);
    ahead_replays(&k);
    kit_done(&k);
}

/* What it shares was settled with the first part, and stays when another call is recorded that has
 * more of it. */
TEST(bulk_ahead, calls_that_run_at_once_are_kept_apart)
{
    struct kit k;
    struct session_answer *a, *b;
    struct session_plan *p, *q;
    struct buf record = {0};
    bool more[2] = {true, true};

    ahead_init(&k, NULL);
    p = kit_ask(&k, long_text(&k, 5000, ""), NULL);
    q = kit_ask(&k, long_text(&k, 5000, ""), NULL);
    a = answers_of(&k, 1, IDS, 1);
    b = answers_of(&k, 1, IDS, 2);
    while (more[0] || more[1]) {
        more[0] = session_answers_record(p, a, 1, PART, ++k.now, &record);
        if (more[0])
            ahead_apply(&k, &record);
        more[1] = session_answers_record(q, b, 1, PART, ++k.now, &record);
        if (more[1])
            ahead_apply(&k, &record);
    }
    ahead_commit(&k, q, b, 1);
    ahead_commit(&k, p, a, 1);
    ahead_same(k.s, b, 1, 0);
    ahead_same(k.s, a, 1, 1);
    ahead_replays(&k);
    kit_done(&k);
}

/* --- records that no session wrote, as a snapshot may have them --- */

/* Any one of the parts missing, or all. */
TEST(bulk_ahead, a_commit_without_all_its_parts_is_refused_whole)
{
    struct kit k;

    ahead_init(&k, NULL);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}

TEST(bulk_ahead, parts_at_places_that_they_cannot_have_are_refused)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(ahead_block(&k, 7, 4, 0, BLOCK_BULK, "abcd"), -1, "none before it");
    cr_assert_eq(ahead_block(&k, 7, 0, 0, BLOCK_BULK, ""), -1);
    cr_assert_eq(ahead_block(&k, 7, 0, 0, BLOCK_BULK, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 4, 1, BLOCK_BULK, "abcd"), -1,
                 "the one before it is of no record yet");
    cr_assert_eq(ahead_block(&k, 7, 3, 0, BLOCK_BULK, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 4, 0, BLOCK_BULK, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 0, 2, BLOCK_BULK, "abcd"), 0, "anew");
    cr_assert_eq(k.s->payloads.n, 0);
    session_free_answers(k.s);
    cr_assert_eq(k.s->answers_bytes, 0);
    kit_done(&k);
}
