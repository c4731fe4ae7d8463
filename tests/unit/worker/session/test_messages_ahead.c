/* Long messages of answers: made ready for their record, which stands behind parts of their JSON.
 */
#include <string.h>

#include "ahead_kit.h"
#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/record_parts.h"
#include "worker/session/session_answer.h"
#include "worker/session/session_call.h"
#include "worker/session/session_texts.h"
#include "worker/session/session_totals.h"
#include "worker/session/store.h"

enum { PART = 16 << 10, IDS = 100 };

static const char *const ASK = "[{\"role\":\"user\",\"content\":\"a\"}]";

/* An assistant message with a text, a thought and the arguments of a call of about n bytes each in
 * JSON; line ends take two there. */
static const struct json *message_of(struct kit *k, size_t n, unsigned seed)
{
    static const char *const fields[] = {"{\"role\":\"assistant\",\"content\":\"",
                                         "\",\"reasoning_content\":\"",
                                         "\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
                                         "\"function\",\"function\":{\"name\":\"f\","
                                         "\"arguments\":\"",
                                         "\"}}]}"};
    struct buf b = {0};
    const struct json *ret;

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        buf_puts(&b, fields[i]);
        if (i + 1 == ARRAY_LEN(fields))
            break;
        buf_printf(&b, "%u ", seed);
        for (size_t at = 0; at < n; at += 4)
            buf_printf(&b, "%c\\n%c", (char)('a' + (at / 4 + seed + i) % 26),
                       (char)('a' + at / 104 % 26));
    }
    ret = kit_json(k, arena_str(&k->arena, buf_str(&b)).p);
    buf_done(&b);
    return ret;
}

/* n answers, the i-th with texts of sizes[i] bytes. */
static struct session_answer *answers_of(struct kit *k, const size_t *sizes, uint32_t n,
                                         uint32_t ids, unsigned seed)
{
    struct session_answer *all = arena_calloc(&k->arena, n, sizeof(*all));

    for (uint32_t i = 0; i < n; i++) {
        all[i] = ahead_answer(k, i, ids, seed);
        all[i].message = message_of(k, sizes[i], seed + i);
    }
    return all;
}

/* The next call's parts, with their messages made before; in how many records. */
static size_t make_parts(struct kit *k, struct session_plan *p, struct session_answer *answers,
                         uint32_t n)
{
    session_make_messages(p, answers, n);
    return ahead_parts(k, p, answers, n, PART);
}

static size_t turn(struct kit *k, const char *messages, struct session_answer *answers, uint32_t n)
{
    struct session_plan *p = kit_ask(k, messages, NULL);
    size_t parts;

    cr_assert(p, "%s", k->err.text);
    parts = make_parts(k, p, answers, n);
    ahead_commit(k, p, answers, n);
    return parts;
}

static struct str json_of(struct kit *k, const struct json *v)
{
    struct buf b = {0};
    struct str ret;

    json_write(&b, v);
    ret = arena_str(&k->arena, buf_str(&b));
    buf_done(&b);
    return ret;
}

/* What the session keeps and compares are the messages of the answers. */
static void has_messages(struct kit *k, struct session *s, const struct session_answer *answers,
                         uint32_t n, size_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct checkpoint *t = s->forest.checkpoints.at[first + i];
        struct str want = json_of(k, answers[i].message);

        cr_assert(str_eq(json_of(k, t->message), want));
        cr_assert(str_eq(json_of(k, t->node->msg.json), want));
    }
}

static void replays_with(struct kit *k, const struct session_answer *answers, uint32_t n)
{
    struct session *s;
    struct session_store *again;

    has_messages(k, k->s, answers, n, 0);
    ahead_same(k->s, answers, n, 0);
    ahead_replays(k);
    again = ahead_replayed(k, false, &s);
    has_messages(k, s, answers, n, 0);
    cr_assert_eq(s->forest.longest_said, k->s->forest.longest_said);
    for (size_t i = 0; i < s->forest.nodes.n; i++) {
        cr_assert_eq(s->forest.nodes.at[i]->hash, k->s->forest.nodes.at[i]->hash);
        cr_assert_eq(s->forest.nodes.at[i]->echo, k->s->forest.nodes.at[i]->echo);
        if (message_is_long(&s->forest.nodes.at[i]->msg))
            cr_assert_eq(s->forest.nodes.at[i]->msg.hash, k->s->forest.nodes.at[i]->msg.hash);
    }
    session_store_free(again);
}

TEST(messages_ahead, a_long_message_is_recorded_in_parts_and_kept_as_it_was_made)
{
    static const size_t size = 30000;
    struct record_parts commit;
    struct session_answer *answers;
    struct message_node *node;
    struct kit k;

    ahead_init(&k, NULL);
    answers = answers_of(&k, &size, 1, IDS, 1);
    cr_assert_eq(turn(&k, ASK, answers, 1), 6);
    for (size_t i = 1; i <= 6; i++) {
        cr_assert_eq(ahead_head(&k, i).type, RECORD_BLOCKS);
        cr_assert_eq(ahead_head(&k, i).version, 8);
        cr_assert_lt(k.journal[i].len, PART + 100);
    }
    cr_assert_eq(ahead_head(&k, 7).version, 8);
    cr_assert_lt(k.journal[7].len, 300 + IDS * 8, "it has none of it");
    session_record_parts(buf_str(&k.journal[7]), &commit);
    cr_assert(commit.sense == PARTS_NAMED && commit.named[PART_BLOCKS]);
    replays_with(&k, answers, 1);
    node = k.s->forest.checkpoints.at[0]->node;
    cr_assert_eq(k.s->forest.checkpoints.at[0]->message, node->msg.json, "it is there once");
    cr_assert_neq(node->echo, 0);
    cr_assert_eq(map_get(&k.s->forest.by_echo, str_of((const char *)&node->echo, 8)), node);
    kit_done(&k);
}

/* The journal of an ordinary call has the bytes that it always had, whoever made them. */
TEST(messages_ahead, a_short_message_stands_in_the_commit)
{
    static const size_t size = PART / 3 - 200;
    struct session_answer *answers;
    struct kit k[2];

    for (int made = 0; made < 2; made++) {
        struct session_plan *p;

        ahead_init(&k[made], NULL);
        answers = answers_of(&k[made], &size, 1, IDS, 1);
        p = kit_ask(&k[made], ASK, NULL);
        if (made)
            cr_assert_eq(make_parts(&k[made], p, answers, 1), 0);
        cr_assert_eq(!answers[0].message_text.p, !made);
        k[made].now = 5000;
        ahead_commit(&k[made], p, answers, 1);
        cr_assert_eq(ahead_head(&k[made], 1).version, 2);
        replays_with(&k[made], answers, 1);
    }
    cr_assert(str_eq(buf_str(&k[0].journal[1]), buf_str(&k[1].journal[1])));
    kit_done(&k[0]);
    kit_done(&k[1]);
}

/* As when a helper is given no time for it: then the commit has it. */
TEST(messages_ahead, a_message_that_was_not_made_ready_stands_in_the_commit)
{
    static const atomic_bool yes = true;
    static const size_t size = 30000;
    struct session_answer *answers;
    struct session_plan *p;
    struct kit k;

    ahead_init(&k, NULL);
    answers = answers_of(&k, &size, 1, IDS, 1);
    p = kit_ask(&k, ASK, NULL);
    cancel_flag = &yes;
    cr_assert_eq(make_parts(&k, p, answers, 1), 0);
    cancel_flag = NULL;
    ahead_commit(&k, p, answers, 1);
    cr_assert_eq(ahead_head(&k, 1).version, 2);
    replays_with(&k, answers, 1);
    kit_done(&k);
}

/* Beside long blocks of other kinds a short message stays where it was, in the form of before. */
TEST(messages_ahead, records_with_other_blocks_alone_have_the_version_that_they_had)
{
    static const size_t sizes[] = {100, 30000};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct session_answer *answers;
        struct kit k;
        char told[20000];

        ahead_init(&k, NULL);
        answers = answers_of(&k, &sizes[i], 1, IDS, 1);
        memset(told, 't', sizeof(told));
        answers[0].told = arena_str(&k.arena, str_of(told, sizeof(told)));
        cr_assert_eq(turn(&k, ASK, answers, 1), i == 0 ? 2 : 2 + 6);
        cr_assert_eq(ahead_head(&k, 1).version, 4);
        cr_assert_eq(ahead_head(&k, k.n_journal - 1).version, i == 0 ? 4 : 8);
        answers[0].told = arena_str(&k.arena, str_of(told, sizeof(told)));
        replays_with(&k, answers, 1);
        kit_done(&k);
    }
}

/* Long ones and short ones, before answers that are parts themselves, and before ones that stand in
 * the commit. */
TEST(messages_ahead, each_answer_of_a_call_has_its_own)
{
    static const size_t sizes[] = {30000, 10, 20000, 6000, 10};

    for (int many = 0; many < 2; many++) {
        struct session_answer *answers;
        struct kit k;

        ahead_init(&k, NULL);
        answers = answers_of(&k, sizes, 5, many ? 2000 : 10, 1);
        cr_assert_geq(turn(&k, ASK, answers, 5), 6 + 4 + 2);
        cr_assert_eq(k.s->forest.checkpoints.n, 5);
        replays_with(&k, answers, 5);
        kit_done(&k);
    }
}

/* A session with parts and one without have the same state, but for times. */
TEST(messages_ahead, parts_make_the_same_session)
{
    static const size_t size = 30000;
    struct kit k, l;
    struct session_plan *p;
    struct session_answer *answers;
    struct buf one = {0}, other = {0};

    ahead_init(&k, NULL);
    ahead_init(&l, NULL);
    p = kit_ask(&k, ASK, NULL);
    k.now = l.now = 5000;
    ahead_commit(&k, p, answers_of(&k, &size, 1, IDS, 1), 1);
    p = kit_ask(&l, ASK, NULL);
    answers = answers_of(&l, &size, 1, IDS, 1);
    cr_assert_eq(make_parts(&l, p, answers, 1), 6);
    l.now = 5000;
    ahead_commit(&l, p, answers, 1);
    ahead_state(k.s, &one);
    ahead_state(l.s, &other);
    cr_assert(str_eq(buf_str(&one), buf_str(&other)));
    cr_assert_eq(k.s->forest.nodes.at[1]->hash, l.s->forest.nodes.at[1]->hash);
    cr_assert_eq(k.s->forest.nodes.at[1]->echo, l.s->forest.nodes.at[1]->echo);
    cr_assert_eq(k.s->forest.nodes.at[1]->msg.hash, l.s->forest.nodes.at[1]->msg.hash);
    buf_done(&one);
    buf_done(&other);
    kit_done(&k);
    kit_done(&l);
}

/* Sent back whole, or with white space around its text, it is the same place. */
TEST(messages_ahead, the_conversation_goes_on_behind_it)
{
    static const size_t size = 30000;
    struct session_answer *answers;
    struct buf ask = {0};
    struct kit k;

    ahead_init(&k, NULL);
    answers = answers_of(&k, &size, 1, IDS, 1);
    (void)turn(&k, ASK, answers, 1);
    buf_puts(&ask, "[{\"role\":\"user\",\"content\":\"a\"},");
    json_write(&ask, answers[0].message);
    buf_puts(&ask, ",{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"b\"}]");
    cr_assert_geq(kit_turn(&k, arena_str(&k.arena, buf_str(&ask)).p, "B"), 0);
    cr_assert_eq(k.s->forest.checkpoints.at[1]->parent, k.s->forest.checkpoints.at[0]);
    ahead_replays(&k);
    buf_done(&ask);
    kit_done(&k);
}

/* The same long answer to a request that came twice is one checkpoint. */
TEST(messages_ahead, the_same_answer_again_is_found)
{
    static const size_t size = 30000;
    struct session_answer *again;
    struct kit k;

    ahead_init(&k, "{\"idempotent_retry\":true}");
    (void)turn(&k, ASK, answers_of(&k, &size, 1, IDS, 1), 1);
    again = answers_of(&k, &size, 1, IDS, 1);
    again[0].response_id = STR("r-again");
    cr_assert_eq(turn(&k, ASK, again, 1), 6);
    cr_assert_eq(k.s->refreshed, 1);
    cr_assert(k.s->forest.checkpoints.at[0]->hidden);
    cr_assert_eq(k.s->forest.nodes.n, 2);
    has_messages(&k, k.s, again, 1, 1);
    ahead_replays(&k);
    kit_done(&k);
}

TEST(messages_ahead, a_call_that_fails_leaves_nothing)
{
    static const size_t sizes[] = {30000, 20000};
    struct kit k;
    struct session_totals before, after;
    struct session_plan *p;
    atomic_size_t sum = 0;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    session_store_totals(k.store, &before);
    for (uint32_t n = 1; n <= 2; n++) {
        struct session_answer *answers = answers_of(&k, sizes, n, 2000, 1);
        size_t held;

        p = kit_ask(&k, ASK, NULL);
        held = k.arena.held_bytes;
        k.arena.sum = &sum;
        session_make_messages(p, answers, n);
        k.arena.sum = NULL;
        cr_assert_eq(k.arena.held_bytes, held, "the loop's arena is not the helper's");
        cr_assert_geq(atomic_load(&sum), n == 1 ? 180000 : 300000, "texts and copies");
        cr_assert_gt(ahead_parts(&k, p, answers, n, PART), 5);
        if (n == 1)
            cr_assert_lt(k.s->answers_bytes, 2000, "nothing of it is kept twice");
        session_release(k.store, p);
        cr_assert_eq(atomic_load(&sum), 0);
        session_store_totals(k.store, &after);
        cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
        cr_assert_eq(k.s->answers_bytes, 0);
    }
    (void)turn(&k, ASK, answers_of(&k, sizes, 2, IDS, 2), 2);
    ahead_replays(&k);
    kit_done(&k);
}

/* What the helper's memory was counted in is the session's from the commit on. */
TEST(messages_ahead, memory_is_counted_once)
{
    static const size_t size = 30000;
    struct session_answer *answers;
    struct session_totals before, after;
    struct session_plan *p;
    atomic_size_t sum = 0;
    struct kit k;

    ahead_init(&k, NULL);
    answers = answers_of(&k, &size, 1, IDS, 1);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, ASK, NULL);
    k.arena.sum = &sum;
    session_make_messages(p, answers, 1);
    k.arena.sum = NULL;
    (void)ahead_parts(&k, p, answers, 1, PART);
    ahead_commit(&k, p, answers, 1);
    cr_assert_eq(atomic_load(&sum), 0);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, 65000, "its texts");
    cr_assert_lt(after.bytes - before.bytes, 120000, "once");
    kit_done(&k);
}

/* --- read back --- */

/* With a helper's work for each record that has some, cancelled or not; how many were. */
static unsigned read_back(struct kit *k, bool cancelled, bool wait)
{
    static const atomic_bool yes = true;
    atomic_size_t sum = 0;
    unsigned n = 0;

    session_load_begin(k->s);
    for (size_t i = 0; i < k->n_journal; i++) {
        struct str record = buf_str(&k->journal[i]);
        bool waits = session_texts_wait(k->s, record);
        struct session_texts *t = wait ? session_texts_take(k->s, record, &sum) : NULL;

        if (t) {
            cr_assert(waits);
            cr_assert_geq(atomic_load(&sum), session_texts_bytes(t));
            cancel_flag = cancelled ? &yes : NULL;
            session_texts_make(t);
            cancel_flag = NULL;
            n += !k->s->read_answers;
            session_texts_give(k->s, t);
        }
        session_load_at(k->s, i);
        cr_assert_eq(session_apply(k->store, record, &k->err), 0, "record %zu: %s", i, k->err.text);
        session_texts_end(k->s);
        cr_assert_eq(atomic_load(&sum), 0, "what is the session's is counted there");
    }
    cr_assert_eq(session_load_end(k->s, true, k->now), 0);
    cr_assert_eq(k->s->answers_bytes, 0);
    return n;
}

TEST(messages_ahead, a_session_that_comes_back_has_them_from_a_helper_or_not)
{
    static const size_t sizes[] = {70000, 10, 80000};

    for (int how = 0; how < 3; how++)
        for (uint32_t n = 1; n <= 3; n += 2) {
            struct session_answer *answers;
            struct buf live = {0}, made = {0};
            struct kit k;
            unsigned helped;

            ahead_init(&k, NULL);
            answers = answers_of(&k, sizes, n, 2000, 1);
            (void)turn(&k, ASK, answers, n);
            ahead_state(k.s, &live);
            cr_assert_gt(session_evict(k.store, 0, SIZE_MAX), 0);
            helped = read_back(&k, how == 1, how < 2);
            cr_assert_eq(helped > 0, how < 2);
            ahead_state(k.s, &made);
            cr_assert(str_eq(buf_str(&live), buf_str(&made)));
            has_messages(&k, k.s, answers, n, 0);
            buf_done(&live);
            buf_done(&made);
            kit_done(&k);
        }
}

/* As an older program wrote it: the helper gets a copy. */
TEST(messages_ahead, a_long_message_inside_of_its_record_is_a_helpers_as_well)
{
    static const size_t sizes[] = {70000, 10, 80000};

    for (int cancelled = 0; cancelled < 2; cancelled++)
        for (uint32_t n = 1; n <= 3; n += 2) {
            struct session_answer *answers;
            struct buf live = {0}, made = {0};
            struct session_plan *p;
            struct kit k;

            ahead_init(&k, NULL);
            answers = answers_of(&k, sizes, n, 2000, 1);
            p = kit_ask(&k, ASK, NULL);
            (void)ahead_parts(&k, p, answers, n, 1 << 20);
            ahead_commit(&k, p, answers, n);
            cr_assert_eq(k.n_journal, 2);
            cr_assert_eq(ahead_head(&k, 1).version, 2);
            ahead_state(k.s, &live);
            cr_assert_gt(session_evict(k.store, 0, SIZE_MAX), 0);
            cr_assert_eq(read_back(&k, cancelled, true), 1);
            ahead_state(k.s, &made);
            cr_assert(str_eq(buf_str(&live), buf_str(&made)));
            has_messages(&k, k.s, answers, n, 0);
            buf_done(&live);
            buf_done(&made);
            kit_done(&k);
        }
}

/* --- records that no session wrote, as a snapshot may have them --- */

TEST(messages_ahead, a_commit_without_all_its_parts_is_refused_whole)
{
    static const size_t size = 30000;
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, answers_of(&k, &size, 1, IDS, 1), 1), 6);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}

/* Read by the loop, or by a helper that makes nothing of it. */
TEST(messages_ahead, a_message_that_is_not_json_is_refused_whole)
{
    static const size_t size = 30000;

    for (int helped = 0; helped < 2; helped++) {
        struct session_defaults d;
        struct session_store *st;
        struct session *s = NULL;
        atomic_size_t sum = 0;
        struct kit k;
        bool ended;
        int rc = 0;

        ahead_init(&k, NULL);
        (void)turn(&k, ASK, answers_of(&k, &size, 1, IDS, 1), 1);
        memset(memchr(k.journal[1].p, '{', k.journal[1].len), '!', 1);
        session_defaults_init(&d);
        st = session_store_new(NULL, &d);
        for (size_t i = 0; i < k.n_journal; i++) {
            struct str record = buf_str(&k.journal[i]);
            struct session_texts *t = NULL;

            s = session_find(st, STR("w0-1"), &ended);
            if (s && helped && i + 1 == k.n_journal)
                t = session_texts_take(s, record, &sum);
            if (t) {
                session_texts_make(t);
                session_texts_give(s, t);
            }
            rc = session_apply(st, record, &k.err);
            if (t)
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

TEST(messages_ahead, parts_at_places_that_they_cannot_have_are_refused)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(ahead_block(&k, 7, 0, 0, BLOCK_MESSAGE + 1, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 0, 0, BLOCK_MESSAGE, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 3, 0, BLOCK_MESSAGE, "abcd"), -1);
    cr_assert_eq(ahead_block(&k, 7, 4, 0, BLOCK_TOLD, "abcd"), -1, "a later kind before it");
    cr_assert_eq(ahead_block(&k, 7, 4, 1, BLOCK_TOLD, "abcd"), 0);
    cr_assert_eq(ahead_block(&k, 7, 8, 1, BLOCK_MESSAGE, "abcd"), 0);
    session_free_answers(k.s);
    cr_assert_eq(k.s->answers_bytes, 0);
    kit_done(&k);
}

/* Of completions, which stand at no message, none is another's duplicate. */
TEST(messages_ahead, a_completion_that_says_it_is_a_duplicate_stands_for_itself)
{
    static const int32_t ids[] = {1, 2};
    struct kit k;

    kit_init(&k, NULL);
    for (uint64_t call = 0; call < 2; call++) {
        struct buf r = {0};

        record_begin(&r, RECORD_COMMIT, STR("w0-1"), ++k.now);
        record_put_u(&r, call);
        record_put_u64(&r, call);
        record_put_u64(&r, call);
        record_put_u(&r, 9);
        record_put_floats(&r, &(float){1}, 1);
        record_put_u(&r, COMMIT_RAW);
        for (int i = 0; i < 3; i++) /* prompt tokens, trim, close */
            record_put_u(&r, 0);
        record_put_ids(&r, (struct token_span){ids, 1});
        for (int i = 0; i < 2; i++) /* cause, message */
            record_put_u(&r, 0);
        for (int i = 0; i < 5; i++)
            record_put_str(&r, (struct str){0});
        record_put_u(&r, 1);
        record_put_ids(&r, (struct token_span){ids, 2});
        for (int i = 0; i < 3; i++) /* no logprobs, versions; not cut */
            record_put_u(&r, 0);
        record_put_str(&r, STR("stop"));
        record_put_str(&r, STR("{\"role\":\"assistant\",\"content\":\"a\"}"));
        for (int i = 0; i < 3; i++) /* id, warning, rows */
            record_put_str(&r, (struct str){0});
        for (int i = 0; i < 4 + 3; i++)
            record_put_u(&r, 0);
        record_put_u(&r, call == 0 ? DUPLICATE_NONE : DUPLICATE_KEEP);
        if (call > 0)
            record_put_u(&r, 0);
        cr_assert_eq(session_apply(k.store, buf_str(&r), &k.err), 0, "%s", k.err.text);
        buf_done(&r);
    }
    cr_assert_eq(k.s->forest.checkpoints.n, 2);
    cr_assert_not(k.s->forest.checkpoints.at[1]->hidden);
    cr_assert_eq(k.s->refreshed, 0);
    kit_done(&k);
}
