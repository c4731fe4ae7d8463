/* Long blocks of answers (rows of tokens, what was told) that are recorded before their answers. */
#include "ahead_kit.h"
#include "testing.h"
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

enum { PART = 16 << 10, IDS = 100 };

static const char *const ASK = "[{\"role\":\"user\",\"content\":\"a\"}]";

struct sizes {
    size_t experts, indexer, told;
    uint32_t ids;
};

static const struct sizes LONG = {100003, 50000, 40000, IDS}; /* 7, 4 and 3 parts */

enum { LONG_PARTS = 14 };

static struct str block_of(struct kit *k, size_t n, unsigned seed)
{
    char *p = arena_alloc(&k->arena, n + 1);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)(seed + i * 31 + i / 251);
    return n > 0 ? str_of(p, n) : (struct str){0};
}

/* Made anew, as what was written may read as zeros. */
static struct session_answer *answers_of(struct kit *k, const struct sizes *sizes, uint32_t n,
                                         unsigned seed)
{
    struct session_answer *all = arena_calloc(&k->arena, n, sizeof(*all));

    for (uint32_t i = 0; i < n; i++) {
        all[i] = ahead_answer(k, i, sizes[i].ids, seed);
        all[i].told = block_of(k, sizes[i].told, seed + i);
        all[i].rows[ROWS_EXPERTS] = (struct token_rows){block_of(k, sizes[i].experts, seed + 2 * i),
                                                        3, (uint32_t)sizes[i].experts, 1, 1};
        all[i].rows[ROWS_INDEXER] = (struct token_rows){block_of(k, sizes[i].indexer, seed + 3 * i),
                                                        5, (uint32_t)sizes[i].indexer, 1, 1};
    }
    return all;
}

/* A call with n answers; in how many records before the commit. */
static size_t turn(struct kit *k, const struct sizes *sizes, uint32_t n, unsigned seed)
{
    struct session_answer *answers = answers_of(k, sizes, n, seed);
    struct session_plan *p = kit_ask(k, ASK, NULL);
    size_t parts;

    cr_assert(p, "%s", k->err.text);
    parts = ahead_parts(k, p, answers, n, PART);
    ahead_commit(k, p, answers, n);
    return parts;
}

/* What the record of that number says of parts (record_parts.h). */
static struct record_parts parts_of(const struct kit *k, size_t record)
{
    struct record_parts p;

    session_record_parts(buf_str(&k->journal[record]), &p);
    return p;
}

TEST(blocks_ahead, are_parts_that_their_commit_names)
{
    const struct sizes sizes[] = {{100, 0, 40000, 2000}, {70000, 100, 7, 2000}};
    struct record_parts commit;
    size_t answers = 0;
    struct kit k;

    ahead_init(&k, NULL);
    (void)turn(&k, sizes, 2, 1);
    commit = parts_of(&k, k.n_journal - 1);
    cr_assert(commit.sense == PARTS_NAMED && commit.named[PART_BLOCKS] &&
              commit.named[PART_ANSWERS] && !commit.named[PART_TEXTS]);
    for (size_t i = 1; i + 1 < k.n_journal; i++) {
        struct record_parts p = parts_of(&k, i);
        bool answer = ahead_head(&k, i).type == RECORD_ANSWERS;

        cr_expect(p.sense == PARTS_ONE && p.call == commit.call);
        cr_expect_eq(p.kind, answer ? PART_ANSWERS : PART_BLOCKS);
        cr_expect_eq(p.first, i == 1 || (answer && answers == 0));
        answers += answer;
    }
    cr_assert_gt(answers, 0);
    kit_done(&k);
}

TEST(blocks_ahead, what_is_recorded_in_parts_is_what_was_answered)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, &LONG, 1, 1), LONG_PARTS);
    for (size_t i = 1; i <= LONG_PARTS; i++) {
        cr_assert_eq(ahead_head(&k, i).type, RECORD_BLOCKS);
        cr_assert_eq(ahead_head(&k, i).version, 4);
        cr_assert_lt(k.journal[i].len, PART + 100);
    }
    cr_assert_eq(ahead_head(&k, LONG_PARTS + 1).version, 4);
    cr_assert_lt(k.journal[LONG_PARTS + 1].len, 300 + IDS * 8, "it has none of them");
    ahead_same(k.s, answers_of(&k, &LONG, 1, 1), 1, 0);
    ahead_replays(&k);
    cr_assert_geq(kit_turn(&k,
                           "[{\"role\":\"user\",\"content\":\"a\"},"
                           "{\"role\":\"assistant\",\"content\":\"answer 0.1\"},"
                           "{\"role\":\"user\",\"content\":\"b\"}]",
                           "B"),
                  0);
    ahead_replays(&k);
    kit_done(&k);
}

/* Each answer has its own: long ones, short ones, none; before answers that are parts themselves,
 * and before ones that stand in the commit. */
TEST(blocks_ahead, each_answer_of_a_call_has_its_own)
{
    for (int many = 0; many < 2; many++) {
        uint32_t ids = many ? 2000 : 10;
        const struct sizes sizes[] = {
            {100, 0, 40000, ids}, {0, 0, 0, ids}, {70000, 100, 7, ids}, {33, 20000, 0, ids}};
        struct kit k;

        ahead_init(&k, NULL);
        cr_assert_eq(turn(&k, sizes, 4, 1), 3 + 5 + 2 + (many ? 4 : 0));
        ahead_same(k.s, answers_of(&k, sizes, 4, 1), 4, 0);
        ahead_replays(&k);
        kit_done(&k);
    }
}

/* A session with parts and one without have the same state, but for times. */
TEST(blocks_ahead, parts_make_the_same_session)
{
    struct kit k, l;
    struct session_plan *p;
    struct session_answer *answers;
    struct buf one = {0}, other = {0};

    ahead_init(&k, NULL);
    ahead_init(&l, NULL);
    p = kit_ask(&k, ASK, NULL);
    k.now = l.now = 5000;
    ahead_commit(&k, p, answers_of(&k, &LONG, 1, 1), 1);
    cr_assert_eq(ahead_head(&k, 1).version, 2);
    p = kit_ask(&l, ASK, NULL);
    answers = answers_of(&l, &LONG, 1, 1);
    cr_assert_eq(ahead_parts(&l, p, answers, 1, PART), LONG_PARTS);
    l.now = 5000;
    ahead_commit(&l, p, answers, 1);
    ahead_state(k.s, &one);
    ahead_state(l.s, &other);
    cr_assert(str_eq(buf_str(&one), buf_str(&other)));
    cr_assert_eq(k.s->forest.tokens, l.s->forest.tokens);
    ahead_same(k.s, answers_of(&k, &LONG, 1, 1), 1, 0);
    buf_done(&one);
    buf_done(&other);
    kit_done(&k);
    kit_done(&l);
}

TEST(blocks_ahead, short_blocks_stand_with_their_answer)
{
    const struct sizes sizes = {PART / 2, PART / 4, PART, IDS};
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, &sizes, 1, 1), 0);
    cr_assert_eq(ahead_head(&k, 1).version, 2);
    ahead_same(k.s, answers_of(&k, &sizes, 1, 1), 1, 0);
    ahead_replays(&k);
    kit_done(&k);
}

/* Who wants the tokens alone does not read the rows back. */
TEST(blocks_ahead, rows_leave_memory_and_come_back_for_who_wants_them)
{
    struct kit k;
    struct checkpoint *t;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, &LONG, 1, 1), LONG_PARTS);
    t = k.s->forest.checkpoints.at[0];
    session_pin(k.s);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), round == 0 ? 12 : 1);
        cr_assert_eq(k.s->payload_bytes, 0);
        cr_assert_eq(ahead_recall(&k, t), 0);
        cr_assert(t->payload->bytes);
        cr_assert_not(t->rows[ROWS_EXPERTS].parts[0]->bytes);
        cr_assert_geq(k.s->payload_evicted, LONG.experts + LONG.indexer);
    }
    ahead_same(k.s, answers_of(&k, &LONG, 1, 1), 1, 0);
    cr_assert_eq(k.s->payload_evicted, 0);
    session_unpin(k.store, k.s);
    kit_done(&k);
}

TEST(blocks_ahead, a_call_that_fails_leaves_nothing)
{
    struct kit k;
    struct session_totals before, after;
    struct session_plan *p;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(ahead_parts(&k, p, answers_of(&k, &LONG, 1, 1), 1, PART), LONG_PARTS);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, LONG.experts + LONG.indexer + LONG.told);
    session_release(k.store, p);
    session_store_totals(k.store, &after);
    cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
    cr_assert_eq(k.s->answers_bytes, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_eq(turn(&k, &LONG, 1, 2), LONG_PARTS);
    ahead_replays(&k);
    kit_done(&k);
}

/* The same number again, as after a crash before the commit: of other blocks, or of none. */
TEST(blocks_ahead, blocks_of_a_call_that_was_never_recorded_are_forgotten)
{
    static const struct sizes next[] = {
        {0, 20000, 0, IDS}, {200000, 0, 0, IDS}, {10, 10, 10, IDS}, {10, 10, 17000, IDS}};

    for (size_t i = 0; i < ARRAY_LEN(next); i++) {
        struct kit k;
        struct session_plan *p;

        ahead_init(&k, NULL);
        p = kit_ask(&k, ASK, NULL);
        (void)ahead_parts(&k, p, answers_of(&k, &LONG, 1, 1), 1, PART);
        session_release_unused(k.store, p);
        (void)turn(&k, &next[i], 1, 2);
        ahead_same(k.s, answers_of(&k, &next[i], 1, 2), 1, 0);
        ahead_replays(&k);
        kit_done(&k);
    }
}

TEST(blocks_ahead, what_no_commit_names_leaves_memory_when_reading_ends)
{
    struct kit k;
    struct session_plan *p;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(ahead_parts(&k, p, answers_of(&k, &LONG, 1, 1), 1, PART), LONG_PARTS);
    session_release(k.store, p);
    cr_assert_gt(session_evict(k.store, 0, SIZE_MAX), 0);
    session_load_begin(k.s);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), 0);
    cr_assert_geq(k.s->payload_bytes, LONG.experts + LONG.indexer);
    cr_assert_eq(session_load_end(k.s, true, k.now), 0);
    cr_assert_eq(k.s->answers_bytes, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    kit_done(&k);
}

TEST(blocks_ahead, those_of_calls_that_run_at_once_are_kept_apart)
{
    static const struct sizes two[] = {{50000, 0, 0, IDS}, {0, 0, 50000, IDS}};
    struct kit k;
    struct session_answer *a, *b;
    struct session_plan *p, *q;
    struct buf record = {0};

    ahead_init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    q = kit_ask(&k, ASK, NULL);
    a = answers_of(&k, two, 2, 1);
    b = answers_of(&k, two, 2, 2);
    for (int i = 0; i < 8; i++) {
        cr_assert(session_answers_record(p, a, 2, PART, ++k.now, &record));
        ahead_apply(&k, &record);
        cr_assert(session_answers_record(q, b, 2, PART, ++k.now, &record));
        ahead_apply(&k, &record);
    }
    ahead_commit(&k, q, b, 2);
    ahead_commit(&k, p, a, 2);
    ahead_same(k.s, answers_of(&k, two, 2, 2), 2, 0);
    ahead_same(k.s, answers_of(&k, two, 2, 1), 2, 2);
    ahead_replays(&k);
    kit_done(&k);
}

/* --- records that no session wrote, as a snapshot may have them --- */

/* Any one of them missing, or all. */
TEST(blocks_ahead, a_commit_without_all_its_blocks_is_refused_whole)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, &LONG, 1, 1), LONG_PARTS);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}

TEST(blocks_ahead, parts_at_places_that_they_cannot_have_are_refused)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(ahead_block(&k, 7, 4, 0, 0, "abcd"), -1, "none before it");
    cr_assert_eq(ahead_block(&k, 7, 0, 0, BLOCK_KINDS + 1, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 0, 0, 0, ""), -1);
    cr_assert_eq(ahead_block(&k, 7, 0, UINT64_C(1) << 32, 0, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 0, 1, BLOCK_INDEXER, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 3, 1, BLOCK_INDEXER, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 4, 1, BLOCK_EXPERTS, "abcd"), -1, "a later kind before it");
    cr_assert_eq(ahead_block(&k, 7, 4, 0, BLOCK_TOLD, "abcd"), -1, "a later answer before it");
    cr_assert_eq(ahead_block(&k, 7, 4, 1, BLOCK_TOLD, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 8, 2, BLOCK_EXPERTS, "abcd"), 0);
    cr_assert_eq(k.s->payloads.n, 2);
    session_free_answers(k.s);
    cr_assert_eq(k.s->payloads.n, 0);
    cr_assert_eq(k.s->answers_bytes, 0);
    kit_done(&k);
}

/* Answers that have named blocks go with them. */
TEST(blocks_ahead, blocks_that_begin_anew_take_the_answers_along)
{
    const struct sizes sizes[] = {{20000, 0, 0, 2000}, {20000, 0, 0, 2000}};
    struct session_answer *answers;
    struct session_plan *p;
    struct kit k;
    uint64_t call;

    ahead_init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    call = p->call;
    answers = answers_of(&k, sizes, 2, 1);
    cr_assert_eq(ahead_parts(&k, p, answers, 2, PART), 4 + 2);
    cr_assert_eq(k.s->answers_ahead.n, 1);
    cr_assert_eq(ahead_block(&k, call, 20000, 1, BLOCK_EXPERTS, "more"), -1, "it has been named");
    cr_assert_eq(ahead_block(&k, call, 0, 0, BLOCK_EXPERTS, "abcd"), 0);
    cr_assert_eq(k.s->answers_ahead.n, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    session_release(k.store, p);
    cr_assert_eq(k.s->payloads.n, 0);
    kit_done(&k);
}
