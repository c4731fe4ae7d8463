/* Long bytes of a call (numbers, texts, rows) in fragments before its commit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ahead_kit.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/session_texts.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"
#include "worker/text/request/odds.h"

enum { PART = 8 << 10, IDS = 1500, N_TOP = 3, WHOLE = 64 << 20 };

/* Adds a block of 103 bytes for rows before the odds, and one of 9 bytes after them. */
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

/* Makes the text of a list with a user message of n bytes, which are n tokens, followed by
 * `behind`. */
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

/* The parts of a path have the same ids as its copy. */
static void same_parts(const struct checkpoint *t, const int32_t *ids)
{
    int32_t *x = calloc(t->total, sizeof(*x));
    struct arena a = {0};
    struct token_parts p = {.n = t->total};

    p.parts = checkpoint_parts(&t->payload->session->forest, t, &a, &p.n_parts);
    token_parts_copy(p, 0, p.n, x);
    cr_assert_arr_eq(x, ids, t->total * sizeof(*x));
    for (uint32_t from = 0; from + 7 <= t->total; from += 97) {
        token_parts_copy(p, from, 7, x);
        cr_assert_arr_eq(x, ids + from, 7 * sizeof(*x));
    }
    arena_done(&a);
    free(x);
}

/* Compares the ids on the path with those of a session that was recorded without fragments. */
static void same_path(const struct checkpoint *a, const struct checkpoint *b)
{
    int32_t *x = calloc(a->total, sizeof(*x)), *y = calloc(b->total, sizeof(*y));

    cr_assert_eq(a->total, b->total);
    checkpoint_copy(a, x);
    checkpoint_copy(b, y);
    cr_assert_arr_eq(x, y, a->total * sizeof(*x));
    cr_assert_eq(a->sent, b->sent);
    same_parts(a, x);
    free(x);
    free(y);
}

/* Returns the number of records of a type. */
static size_t count_type(const struct kit *k, uint64_t type)
{
    size_t n = 0;

    for (size_t i = 0; i < k->n_journal; i++)
        n += ahead_head(k, i).type == type;
    return n;
}

TEST(bulk, what_is_recorded_in_fragments_is_what_was_answered)
{
    struct kit k;
    size_t parts;

    ahead_init(&k, NULL);
    parts = turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_eq(count_type(&k, RECORD_BULK), parts);
    cr_assert_lt(k.journal[parts + 1].len, 1000, "the head has lengths alone");
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

/* Adds long data: a prepared message, replay text, and rows of both kinds. */
static void lengthen(struct kit *k, struct session_answer *a, size_t bytes, unsigned seed)
{
    char *block = arena_alloc(&k->arena, bytes), *text = arena_alloc(&k->arena, bytes);

    for (size_t i = 0; i < bytes; i++) {
        block[i] = (char)(i * 31 + i / 251);
        text[i] = (char)('a' + (i * 7 + i / 253) % 26);
    }
    a->rows[ROWS_EXPERTS] = (struct token_rows){str_of(block, bytes), 3, 1, 1, 1};
    a->rows[ROWS_INDEXER] =
        (struct token_rows){arena_str(&k->arena, str_of(block, bytes / 2)), 5, 1, 1, 1};
    a->told = arena_str(&k->arena, str_of(text, bytes / 3));
    a->message =
        kit_json(k, arena_printf(&k->arena, "{\"role\":\"assistant\",\"content\":\"%u %.*s\\n\"}",
                                 seed, (int)bytes, text)
                        .p);
}

static struct session_answer *long_answers(struct kit *k, uint32_t n, size_t bytes, unsigned seed)
{
    struct session_answer *a = answers_of(k, n, IDS, seed);

    for (uint32_t i = 0; i < n; i++)
        lengthen(k, &a[i], bytes + i, seed + i);
    return a;
}

/* Plays a turn with n long answers. Returns the number of fragments. */
static size_t long_turn(struct kit *k, const char *messages, uint32_t n, size_t bytes, size_t part,
                        unsigned seed)
{
    struct session_answer *a = long_answers(k, n, bytes, seed);
    struct session_plan *p = kit_ask(k, messages, NULL);
    size_t parts;

    cr_assert(p, "%s", k->err.text);
    session_make_messages(p, a, n);
    parts = ahead_parts(k, p, a, n, part);
    k->now = 5000 + seed;
    ahead_commit(k, p, a, n);
    return parts;
}

static void same_messages(const struct session *a, const struct session *b)
{
    cr_assert_eq(a->forest.nodes.n, b->forest.nodes.n);
    for (size_t i = 0; i < a->forest.nodes.n; i++) {
        const struct message_node *x = a->forest.nodes.at[i], *y = b->forest.nodes.at[i];

        cr_assert(json_equal(x->msg.json, y->msg.json));
        cr_assert_eq(x->hash, y->hash);
        cr_assert_eq(x->echo, y->echo);
    }
}

/* A session in fragments and one in whole records have the same state, except for times, wherever
 * the fragments end. */
TEST(bulk, fragments_make_the_same_session)
{
    static const size_t sizes[] = {1 << 10, PART, 4001, 33333};

    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        struct kit k, l;
        struct buf one = {0}, other = {0};
        uint32_t n = i % 2 ? 3 : 1;

        ahead_init(&k, NULL);
        ahead_init(&l, NULL);
        for (unsigned seed = 1; seed < 3; seed++) {
            cr_assert_eq(long_turn(&k, long_text(&k, 5000 + seed, ""), n, 20000, WHOLE, seed), 0);
            cr_assert_gt(
                long_turn(&l, long_text(&l, 5000 + seed, ""), n, 20000, sizes[i / 2], seed), 1);
        }
        ahead_state(k.s, &one);
        ahead_state(l.s, &other);
        cr_assert(str_eq(buf_str(&one), buf_str(&other)));
        cr_assert_eq(k.s->forest.tokens, l.s->forest.tokens);
        cr_assert_eq(k.s->forest.top_id, l.s->forest.top_id);
        same_messages(k.s, l.s);
        for (uint32_t j = 0; j < 2 * n; j++) {
            same_path(l.s->forest.checkpoints.at[j], k.s->forest.checkpoints.at[j]);
            same_odds(&l, j);
        }
        ahead_same(k.s, long_answers(&k, n, 20000, 2), n, n);
        ahead_same(l.s, long_answers(&l, n, 20000, 2), n, n);
        ahead_replays(&k);
        ahead_replays(&l);
        buf_done(&one);
        buf_done(&other);
        kit_done(&k);
        kit_done(&l);
    }
}

/* Answers and long rows have separate payloads. A reader that needs the tokens of one answer reads
 * no other payload. */
TEST(bulk, pieces_leave_memory_and_come_back_for_those_that_want_them)
{
    struct kit k;
    const struct checkpoint *t;

    ahead_init(&k, NULL);
    (void)long_turn(&k, long_text(&k, 10, ""), 3, 20000, PART, 1);
    cr_assert_eq(k.s->payloads.n, 3 + 6 + 1, "answers, rows, and what was told");
    t = k.s->forest.checkpoints.at[1];
    session_pin(k.s);
    for (int round = 0; round < 2; round++) {
        cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), round == 0 ? 9 : 2);
        cr_assert(str_eq(t->told, long_answers(&k, 3, 20000, 1)[1].told), "it stays");
        cr_assert_eq(ahead_recall(&k, t), 0);
        cr_assert(t->payload->bytes && t->context.payload->bytes);
        cr_assert_not(t->rows[ROWS_EXPERTS].apart->bytes);
        cr_assert_not(k.s->forest.checkpoints.at[2]->payload->bytes);
    }
    ahead_same(k.s, long_answers(&k, 3, 20000, 1), 3, 0);
    cr_assert_eq(k.s->payload_evicted, 0);
    session_unpin(k.store, k.s);
    kit_done(&k);
}

/* A restart may be between fragments. Then a different call gets the same number. */
TEST(bulk, fragments_of_a_call_that_was_never_recorded_are_void)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(ahead_fragment(&k, 0, 0, BULK_TEXTS, "of the call before"), 0);
    k.n_journal = 1;
    (void)long_turn(&k, long_text(&k, 5000, ""), 1, 20000, PART, 1);
    cr_assert_eq(ahead_fragment(&k, 7, 0, BULK_TOLD, "no commit names it"), 0);
    cr_assert_gt(k.s->bulk_bytes, 0);
    session_free_bulks(k.s);
    ahead_replays(&k);
    kit_done(&k);
}

/* Both calls began before one was recorded. Fragments of the second contain messages that the first
 * has recorded meanwhile. */
TEST(bulk, messages_that_another_call_has_recorded_meanwhile_are_stored_once)
{
    struct kit k;
    struct session_plan *p, *q;
    struct session_answer *a, *b;

    ahead_init(&k, NULL);
    a = answers_of(&k, 1, IDS, 1);
    b = answers_of(&k, 1, IDS, 2);
    p = kit_ask(&k, long_text(&k, 5000, ""), NULL);
    q = kit_ask(&k, long_text(&k, 5000, ",{\"role\":\"user\",\"content\":\"more\"}"), NULL);
    cr_assert_gt(ahead_parts(&k, q, b, 1, PART), 1);
    cr_assert_gt(ahead_parts(&k, p, a, 1, PART), 1);
    ahead_commit(&k, p, a, 1);
    cr_assert_eq(k.s->forest.nodes.n, 2);
    ahead_commit(&k, q, b, 1);
    cr_assert_eq(k.s->forest.nodes.n, 4);
    ahead_replays(&k);
    kit_done(&k);
}

/* The bytes of a fragment may be gone from memory (mem_drop_pages), so the starts of messages must
 * not be read from there. */
TEST(bulk, several_messages_that_another_call_has_recorded_meanwhile)
{
    enum { LONG = 60000 };

    struct kit k;
    struct session_plan *p, *q;
    struct session_answer *a, *b;
    const char *second, *both;

    ahead_init(&k, NULL);
    a = answers_of(&k, 1, IDS, 1);
    b = answers_of(&k, 1, IDS, 2);
    second = long_text(&k, LONG, "") + 1; /* "{...}]" */
    both = arena_printf(&k.arena, ",%s", second).p;
    p = kit_ask(&k,
                long_text(&k, LONG, arena_printf(&k.arena, "%.*s", (int)strlen(both) - 1, both).p),
                NULL);
    q = kit_ask(&k,
                long_text(&k, LONG,
                          arena_printf(&k.arena, "%.*s,{\"role\":\"user\",\"content\":\"more\"}",
                                       (int)strlen(both) - 1, both)
                              .p),
                NULL);
    cr_assert_gt(ahead_parts(&k, q, b, 1, 4 * LONG / 3), 1);
    cr_assert_gt(ahead_parts(&k, p, a, 1, PART), 1);
    ahead_commit(&k, p, a, 1);
    ahead_commit(&k, q, b, 1);
    cr_assert_eq(k.s->forest.nodes.n, 5);
    ahead_replays(&k);
    kit_done(&k);
}

/* Tests every policy, and an upstream without ids. */
TEST(bulk, every_policy_takes_them)
{
    static const char *const options[] = {"{\"history\":\"chains\"}", "{\"history\":\"linear\"}",
                                          "{\"history\":\"timelines\"}", "{}"};

    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        struct kit k;
        struct session_answer *a;
        struct session_plan *p;

        ahead_init(&k, options[i]);
        cr_assert_gt(long_turn(&k, long_text(&k, 10, ""), 8, 3000, PART, 1), 2);
        a = long_answers(&k, 2, 20000, 5);
        for (int j = 0; j < 2; j++) {
            a[j].upstream = true;
            a[j].prompt_tokens = 9;
            a[j].ids.n = 0;
        }
        p = kit_ask(&k, long_text(&k, 20, ""), NULL);
        cr_assert_gt(ahead_parts(&k, p, a, 2, PART), 1);
        ahead_commit(&k, p, a, 2);
        cr_assert(k.s->forest.checkpoints.at[8]->text);
        ahead_replays(&k);
        kit_done(&k);
    }
}

/* --- read back by a helper --- */

TEST(bulk, what_is_made_ready_is_what_the_record_makes)
{
    struct session_defaults d;
    struct session_store *st;
    struct session *s = NULL;
    atomic_size_t sum = 0;
    struct kit k;
    bool ended;

    ahead_init(&k, NULL);
    for (unsigned seed = 1; seed < 4; seed++)
        (void)long_turn(&k, long_text(&k, 5000 + seed, ""), 2, 70000, PART, seed);
    session_defaults_init(&d);
    st = session_store_new(NULL, &d);
    for (size_t i = 0; i < k.n_journal; i++) {
        struct str record = buf_str(&k.journal[i]);

        if (s)
            cr_assert_eq(session_texts_make(s, record, &sum, &k.err), 0);
        cr_assert_eq(session_apply(st, record, &k.err), 0, "%s", k.err.text);
        s = session_find(st, STR("w0-1"), &ended);
        session_texts_end(s);
    }
    cr_assert_eq(atomic_load(&sum), 0, "what was made is the session's");
    same_messages(k.s, s);
    session_store_free(st);
    kit_done(&k);
}

/* The loop reads it, or a helper that cannot. */
TEST(bulk, a_message_that_is_not_json_is_refused_whole)
{
    for (int helped = 0; helped < 2; helped++) {
        struct session_defaults d;
        struct session_store *st;
        struct session *s = NULL;
        atomic_size_t sum = 0;
        struct kit k;
        bool ended;
        int rc = 0;

        ahead_init(&k, NULL);
        (void)long_turn(&k, long_text(&k, 10, ""), 1, 70000, PART, 1);
        memset(memchr(k.journal[1].p + 40, '{', k.journal[1].len - 40), '!', 1);
        session_defaults_init(&d);
        st = session_store_new(NULL, &d);
        for (size_t i = 0; i < k.n_journal; i++) {
            s = session_find(st, STR("w0-1"), &ended);
            if (s && helped)
                cr_assert_eq(session_texts_make(s, buf_str(&k.journal[i]), &sum, &k.err), 0);
            rc = session_apply(st, buf_str(&k.journal[i]), &k.err);
            if (s)
                session_texts_end(s);
        }
        cr_assert_eq(rc, -1);
        cr_assert_eq(s->forest.checkpoints.n, 0);
        cr_assert_eq(s->forest.nodes.n, 0);
        cr_assert_eq(atomic_load(&sum), 0);
        session_store_free(st);
        kit_done(&k);
    }
}

/* Calls whose contexts have a common start. Each shares the runs that it can. It copies them if
 * they depend on too many others. */
TEST(bulk, shared_contexts_are_not_in_the_parts)
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

TEST(bulk, it_leaves_memory_and_comes_back)
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

/* Megabytes of ids in separate pages, with megabytes of text. */
TEST(bulk, a_very_long_one_is_like_others)
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

/* A wrong record is not accepted, and a later attempt finds the right one. */
TEST(bulk, a_part_that_is_another_is_not_taken)
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
         other += k.n_journal - 2) { /* a record that is no fragment, and a last one */
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

TEST(bulk, a_call_that_fails_leaves_nothing)
{
    struct kit k;
    struct session_totals before, after;
    struct session_plan *p;
    size_t bytes;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, long_text(&k, 10, ""), "A"), 0);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, long_text(&k, 5000, ""), NULL);
    bytes = PART * (ahead_parts(&k, p, answers_of(&k, 1, IDS, 1), 1, PART) - 3);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, bytes);
    session_release(k.store, p);
    session_store_totals(k.store, &after);
    cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
    cr_assert_eq(k.s->bulk_bytes, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 2);
    ahead_same(k.s, answers_of(&k, 1, IDS, 2), 1, 1);
    ahead_replays(&k);
    kit_done(&k);
}

/* The shared context was decided with the first fragment. It stays even if a call is recorded that
 * has more of it. */
TEST(bulk, calls_that_run_at_once_are_kept_apart)
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
        more[0] = session_bulk_record(p, a, 1, PART, ++k.now, &record);
        if (more[0])
            ahead_apply(&k, &record);
        more[1] = session_bulk_record(q, b, 1, PART, ++k.now, &record);
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

/* Any one of the fragments is missing, or all. */
TEST(bulk, a_commit_without_all_its_parts_is_refused_whole)
{
    struct kit k;

    ahead_init(&k, NULL);
    (void)turn(&k, long_text(&k, 5000, ""), 1, IDS, 1);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}

TEST(bulk, fragments_in_wrong_places_are_refused)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(ahead_fragment(&k, 7, 4, 2, "abcd"), -1, "none is before it");
    cr_assert_eq(ahead_fragment(&k, 7, 0, 2, ""), -1);
    cr_assert_eq(ahead_fragment(&k, 7, 0, BULK_PIECES_MAX, "abcd"), -1);
    cr_assert_eq(ahead_fragment(&k, 7, 0, 2, "abcd"), 0);
    cr_assert_eq(ahead_fragment(&k, 7, 4, 1, "abcd"), -1, "that piece is over");
    cr_assert_eq(ahead_fragment(&k, 7, 3, 2, "abcd"), -1);
    cr_assert_eq(ahead_fragment(&k, 7, 4, 2, "abcd"), 0);
    cr_assert_eq(ahead_fragment(&k, 7, 8, 5, "abcd"), 0);
    cr_assert_eq(ahead_fragment(&k, 7, 0, 3, "abcd"), 0, "from the start");
    cr_assert_eq(bulk_bytes(session_bulk(k.s, 7), 2).len, 0);
    cr_assert_eq(k.s->payloads.n, 0);
    session_free_bulks(k.s);
    cr_assert_eq(k.s->bulk_bytes, 0);
    kit_done(&k);
}

/* Two answers cannot have the same piece, and each piece belongs to an answer as a whole. */
TEST(bulk, a_piece_is_named_once_and_whole)
{
    struct call_bulk b = {0};
    struct bulk_fragment f = {.piece = 2, .bytes = STR("abcd")};

    cr_assert(bulk_add(&b, &f, 1));
    cr_assert_not(bulk_name(&b, 2, 3));
    cr_assert_not(bulk_name(&b, 3, 4));
    cr_assert(bulk_name(&b, 3, 0));
    cr_assert(bulk_name(&b, 2, 4));
    cr_assert_not(bulk_name(&b, 2, 4));
    bulk_done(&b);
}

/* Versions of older and of newer programs. The error says what to do. */
TEST(bulk, records_of_another_version_are_refused)
{
    static const uint64_t versions[] = {1, RECORD_VERSION_OLDEST - 1, RECORD_VERSION + 1};

    for (size_t i = 0; i < ARRAY_LEN(versions); i++) {
        struct kit k;
        struct buf record = {0};

        ahead_init(&k, NULL);
        record_put_head(&record,
                        &(struct record_head){RECORD_COMMIT, versions[i], STR("w0-1"), 1000});
        cr_assert_eq(session_apply(k.store, buf_str(&record), &k.err), -1);
        cr_assert_eq(k.err.kind, ERR_UNSUPPORTED);
        cr_assert(strstr(k.err.text, "rollgate export"));
        buf_done(&record);
        kit_done(&k);
    }
}

/* A flag of a later program is refused by name, in each readable version. */
TEST(bulk, unknown_flags_of_a_commit_are_refused)
{
    struct kit k;

    ahead_init(&k, NULL);
    for (uint64_t v = RECORD_VERSION_OLDEST; v <= RECORD_VERSION; v++) {
        static const char hashes_and_more[16 + 1 + sizeof(float)]; /* and max_tokens */
        struct buf record = {0};

        record_put_head(&record, &(struct record_head){RECORD_COMMIT, v, session_id(k.s), 1000});
        record_put_u(&record, 1);
        buf_add(&record, hashes_and_more, sizeof(hashes_and_more));
        record_put_u(&record, COMMIT_TEXT | 2 * COMMIT_AFTER);
        record_put_u(&record, 0);
        cr_assert_eq(session_apply(k.store, buf_str(&record), &k.err), -1);
        cr_expect_eq(k.err.kind, ERR_UNSUPPORTED);
        cr_expect_not_null(strstr(k.err.text, "flags 0x200000"), "%s", k.err.text);
        buf_done(&record);
    }
    kit_done(&k);
}
