/* Several large answers of a call that are recorded before its commit. */
#include <string.h>

#include "ahead_kit.h"
#include "testing.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/payload.h"
#include "worker/session/recall.h"
#include "worker/session/record.h"
#include "worker/session/session.h"
#include "worker/session/session_answer.h"
#include "worker/session/session_call.h"
#include "worker/session/session_past.h"
#include "worker/session/session_totals.h"
#include "worker/session/store.h"

enum { IDS = 1000, PART = 36 << 10 }; /* of four such answers, with their logprobs */

static const char *const ASK = "[{\"role\":\"user\",\"content\":\"a\"}]";

/* n answers of so many ids each; others with another seed. */
static struct session_answer *answers_of(struct kit *k, uint32_t n, uint32_t n_ids, unsigned seed)
{
    struct session_answer *all = arena_calloc(&k->arena, n, sizeof(*all));

    for (uint32_t i = 0; i < n; i++) {
        all[i] = ahead_answer(k, i, n_ids, seed);
        all[i].told = arena_printf(&k->arena, "told %u", i);
        if (i % 3 == 1)
            all[i].parse_warning = STR("a warning");
        if (i % 3 == 2) {
            all[i].rows[ROWS_EXPERTS] = (struct token_rows){STR("block of 17 bytes"), 0, 1, 1, 1};
            all[i].drifted_tokens = i;
        }
    }
    return all;
}

/* A call with n answers; in how many parts they were recorded. */
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

TEST(answers_ahead, what_is_recorded_in_parts_is_what_was_answered)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    cr_assert_eq(k.n_journal, 6);
    for (size_t i = 1; i < 5; i++)
        cr_assert_eq(ahead_head(&k, i).type, RECORD_ANSWERS);
    cr_assert_eq(ahead_head(&k, 5).type, RECORD_COMMIT);
    cr_assert_lt(k.journal[5].len, 300, "it has none of them");
    ahead_same(k.s, answers_of(&k, 16, IDS, 1), 16, 0);
    ahead_replays(&k);
    cr_assert_geq(kit_turn(&k,
                           "[{\"role\":\"user\",\"content\":\"a\"},"
                           "{\"role\":\"assistant\",\"content\":\"answer 9.1\"},"
                           "{\"role\":\"user\",\"content\":\"b\"}]",
                           "B"),
                  0);
    cr_assert_eq(k.s->forest.checkpoints.at[16]->parent, k.s->forest.checkpoints.at[9]);
    ahead_replays(&k);
    kit_done(&k);
}

/* A session without parts and one with them have the same state, but for times. */
TEST(answers_ahead, parts_make_the_same_session)
{
    struct kit k, l;
    struct session_answer *answers;
    struct session_plan *p;
    struct buf one = {0}, other = {0};

    ahead_init(&k, NULL);
    ahead_init(&l, NULL);
    p = kit_ask(&k, ASK, NULL);
    k.now = 5000;
    answers = answers_of(&k, 16, IDS, 1);
    ahead_commit(&k, p, answers, 16);
    cr_assert_eq(ahead_head(&k, 1).version, 2);
    p = kit_ask(&l, ASK, NULL);
    cr_assert_eq(ahead_parts(&l, p, answers, 16, PART), 4);
    l.now = 5000;
    ahead_commit(&l, p, answers, 16);
    ahead_state(k.s, &one);
    ahead_state(l.s, &other);
    cr_assert(str_eq(buf_str(&one), buf_str(&other)), "%.*s\n%.*s", (int)MIN_OF(one.len, 3000),
              one.p, (int)MIN_OF(other.len, 3000), other.p);
    cr_assert_eq(k.s->forest.tokens, l.s->forest.tokens);
    cr_assert_eq(k.s->payload_bytes, l.s->payload_bytes);
    buf_done(&one);
    buf_done(&other);
    kit_done(&k);
    kit_done(&l);
}

TEST(answers_ahead, one_answer_or_small_ones_stand_in_the_commit)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 1, 4 * IDS, 1), 0);
    cr_assert_eq(turn(&k, ASK, 3, IDS, 2), 0);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(ahead_head(&k, i).version, 2);
    ahead_replays(&k);
    kit_done(&k);
}

/* 32 in a record, for each costs something, however short it is. */
TEST(answers_ahead, a_record_holds_so_many_answers)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 32, 2, 1), 0);
    cr_assert_eq(turn(&k, "[{\"role\":\"user\",\"content\":\"b\"}]", 70, 2, 2), 3);
    ahead_same(k.s, answers_of(&k, 70, 2, 2), 70, 32);
    ahead_replays(&k);
    kit_done(&k);
}

/* Each is more than a part: three of its bulk, then itself. */
TEST(answers_ahead, a_record_holds_whole_answers)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 3, 10 * IDS, 1), 3 * (3 + 1));
    ahead_same(k.s, answers_of(&k, 3, 10 * IDS, 1), 3, 0);
    ahead_replays(&k);
    kit_done(&k);
}

/* Version 3: an older program says that it cannot read them. */
TEST(answers_ahead, only_sessions_with_parts_need_a_newer_program)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 8, IDS, 1), 2);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(ahead_head(&k, i).version, i == 0 ? 2 : 3);
    kit_done(&k);
}

TEST(answers_ahead, parts_of_calls_that_run_at_once_are_kept_apart)
{
    struct kit k;
    struct session_answer *a, *b;
    struct session_plan *p, *q;
    struct buf record = {0};

    ahead_init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    q = kit_ask(&k, ASK, NULL);
    a = answers_of(&k, 8, IDS, 1);
    b = answers_of(&k, 8, IDS, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(session_answers_record(p, a, 8, PART, ++k.now, &record));
        ahead_apply(&k, &record);
        cr_assert(session_answers_record(q, b, 8, PART, ++k.now, &record));
        ahead_apply(&k, &record);
    }
    ahead_commit(&k, q, b, 8);
    ahead_commit(&k, p, a, 8);
    ahead_same(k.s, b, 8, 0);
    ahead_same(k.s, a, 8, 8);
    ahead_replays(&k);
    kit_done(&k);
}

TEST(answers_ahead, a_call_that_fails_leaves_nothing)
{
    struct kit k;
    struct session_answer *answers;
    struct session_totals before, after;
    struct session_plan *p;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, ASK, NULL);
    answers = answers_of(&k, 16, IDS, 1);
    cr_assert_eq(ahead_parts(&k, p, answers, 16, PART), 4);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, 16 * IDS * 8);
    cr_assert_eq(after.tokens, before.tokens);
    session_release(k.store, p);
    session_store_totals(k.store, &after);
    cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
    cr_assert_eq(k.s->answers_ahead.n, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_eq(turn(&k, ASK, 8, IDS, 2), 2);
    ahead_replays(&k);
    kit_done(&k);
}

/* The same number again, as after a crash before the commit; of more parts than its own call has,
 * or fewer. */
TEST(answers_ahead, parts_of_a_call_that_was_never_recorded_are_forgotten)
{
    for (unsigned n = 4; n <= 24; n += 4) {
        struct kit k;
        struct session_plan *p;

        ahead_init(&k, NULL);
        p = kit_ask(&k, ASK, NULL);
        (void)ahead_parts(&k, p, answers_of(&k, n, IDS, 1), n, PART);
        session_release_unused(k.store, p);
        if (n % 8 == 0)
            cr_assert_eq(turn(&k, ASK, 12, IDS, 2), 3);
        else
            cr_assert_eq(turn(&k, ASK, 2, 10, 2), 0);
        ahead_replays(&k);
        kit_done(&k);
    }
}

TEST(answers_ahead, what_no_commit_names_leaves_memory_when_reading_ends)
{
    struct kit k;
    struct session_plan *p;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(ahead_parts(&k, p, answers_of(&k, 16, IDS, 1), 16, PART), 4);
    session_release(k.store, p);
    cr_assert_gt(session_evict(k.store, 0, SIZE_MAX), 0);
    session_load_begin(k.s);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), 0);
    cr_assert_geq(k.s->payload_bytes, 16 * IDS * 8);
    cr_assert_eq(session_load_end(k.s, true, k.now), 0);
    cr_assert_eq(k.s->answers_bytes, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_lt(k.s->payload_bytes, 1000);
    kit_done(&k);
}

/* Each record's payload leaves on its own, and comes back for who asks for one answer, the state or
 * a replay. */
TEST(answers_ahead, payloads_leave_memory_and_come_back)
{
    struct kit k;
    struct session_answer *answers;
    struct buf want = {0}, got = {0};
    struct arena tmp = {0};
    const struct session_past_call *past;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    answers = answers_of(&k, 16, IDS, 1);
    ahead_state(k.s, &want);
    session_pin(k.s);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 5, "the commit has context ids");
        cr_assert_eq(k.s->payload_bytes, 0);
        if (round == 0) {
            ahead_state(k.s, &got);
            cr_assert(str_eq(buf_str(&want), buf_str(&got)));
        } else if (round == 1) {
            past = session_past(k.s, &tmp, 0, false, &k.err);
            cr_assert(past && past->n_answers == 16 && past->answers[15].ids.n == 0);
            cr_assert_eq(past->completion_tokens, 16 * IDS);
            cr_assert_eq(k.s->payload_bytes, 0, "nothing of that is read back");
            past = session_past(k.s, &tmp, 0, true, &k.err);
            cr_assert(past, "%s", k.err.text);
            cr_assert_gt(k.s->payload_evicted, 0, "the context is not, either way");
            cr_assert_eq(past->n_answers, 16);
            for (int i = 0; i < 16; i++)
                cr_assert_arr_eq(past->answers[i].ids.at, answers[i].ids.at, IDS * sizeof(int32_t));
            ahead_same(k.s, answers, 16, 0);
        } else {
            ahead_same(k.s, answers, 16, 0);
        }
        arena_done(&tmp);
        cr_assert_eq(k.s->payload_evicted, 0);
    }
    session_unpin(k.store, k.s);
    buf_done(&want);
    buf_done(&got);
    kit_done(&k);
}

/* A call that goes on from an answer holds that answer's payload, not those of its siblings. */
TEST(answers_ahead, a_running_call_holds_what_it_stands_on)
{
    struct kit k;
    struct session_plan *p;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    p = kit_ask(&k,
                "[{\"role\":\"user\",\"content\":\"a\"},"
                "{\"role\":\"assistant\",\"content\":\"answer 9.1\"},"
                "{\"role\":\"user\",\"content\":\"b\"}]",
                NULL);
    cr_assert(p);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 3);
    cr_assert(k.s->forest.checkpoints.at[9]->payload->bytes);
    cr_assert_not(k.s->forest.checkpoints.at[0]->payload->bytes);
    cr_assert_eq(kit_answer(&k, p, "B", false), 0);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 1, "the session itself");
    kit_done(&k);
}

/* Between two parts, too, payloads may go. */
TEST(answers_ahead, payloads_may_leave_before_the_commit)
{
    struct kit k;
    struct session_answer *answers;
    struct session_plan *p;
    uint64_t bulk;

    ahead_init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    answers = answers_of(&k, 16, IDS, 1);
    cr_assert_eq(ahead_parts(&k, p, answers, 16, PART), 4);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 4);
    ahead_commit(&k, p, answers, 16);
    ahead_same(k.s, answers, 16, 0);
    ahead_replays(&k);
    bulk = k.s->payload_bytes + k.s->payload_evicted;
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(ahead_parts(&k, p, answers_of(&k, 16, IDS, 5), 16, PART), 4);
    cr_assert_geq(session_evict(k.store, 0, SIZE_MAX), 4);
    session_release(k.store, p);
    cr_assert_eq(k.s->payload_bytes + k.s->payload_evicted, bulk);
    kit_done(&k);
}

/* Of an upstream that tells no ids, and of one whose prompt is not what is stored. */
TEST(answers_ahead, upstreams_answers_are_settled_before_their_first_part)
{
    static const int32_t other[] = {7, 7, 7};
    struct kit k;
    struct session_answer *answers;
    struct session_plan *p;
    char *text;

    ahead_init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    text = arena_zalloc(&k.arena, 9000);
    memset(text, 'x', 8999);
    for (int with_ids = 0; with_ids < 2; with_ids++) {
        size_t first = k.s->forest.checkpoints.n;

        p = kit_ask(&k,
                    "[{\"role\":\"user\",\"content\":\"a\"},"
                    "{\"role\":\"assistant\",\"content\":\"A\"},"
                    "{\"role\":\"user\",\"content\":\"b\"}]",
                    NULL);
        answers = answers_of(&k, 12, IDS, 1 + (unsigned)with_ids);
        for (int i = 0; i < 12; i++) {
            answers[i].upstream = true;
            answers[i].told = str_cstr(text);
            answers[i].prompt_tokens = 9;
            answers[i].rows[ROWS_EXPERTS] = (struct token_rows){0};
            if (with_ids)
                answers[i].prompt = (struct token_span){other, 3};
            else
                answers[i].ids.n = 0;
        }
        cr_assert_eq(ahead_parts(&k, p, answers, 12, PART), with_ids ? 6 : 3);
        ahead_commit(&k, p, answers, 12);
        for (size_t i = first; i < first + 12; i++) {
            const struct checkpoint *t = k.s->forest.checkpoints.at[i];

            cr_assert_eq(t->text, !with_ids);
            cr_assert_eq(t->parent, with_ids ? NULL : k.s->forest.checkpoints.at[0]);
        }
        if (with_ids)
            ahead_same(k.s, answers, 12, first);
        ahead_replays(&k);
    }
    kit_done(&k);
}

/* Further answers stand beside the one history or chain. */
TEST(answers_ahead, every_policy_takes_them)
{
    static const char *const options[] = {"{\"history\":\"chains\"}", "{\"history\":\"linear\"}",
                                          "{\"history\":\"timelines\"}"};

    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        struct kit k;
        struct session_store *again;
        struct session *s;
        struct buf live = {0}, made = {0};

        ahead_init(&k, options[i]);
        cr_assert_eq(turn(&k, ASK, 8, IDS, 1), 2);
        cr_assert_geq(kit_turn(&k,
                               "[{\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"assistant\",\"content\":\"answer 0.1\"},"
                               "{\"role\":\"user\",\"content\":\"b\"}]",
                               "B"),
                      0);
        cr_assert_eq(k.s->forest.checkpoints.at[8]->parent, k.s->forest.checkpoints.at[0]);
        ahead_state(k.s, &live);
        again = ahead_replayed(&k, false, &s);
        ahead_state(s, &made);
        cr_assert(str_eq(buf_str(&live), buf_str(&made)));
        session_store_free(again);
        buf_done(&live);
        buf_done(&made);
        kit_done(&k);
    }
}

TEST(answers_ahead, an_ended_session_takes_no_parts)
{
    struct kit k;
    struct session_answer *a;
    struct session_plan *p;
    struct buf record = {0};

    ahead_init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    a = answers_of(&k, 8, IDS, 1);
    cr_assert(session_answers_record(p, a, 8, PART, k.now, &record));
    ahead_apply(&k, &record);
    cr_assert_eq(kit_end(&k, SESSION_END_ABORT), 0);
    cr_assert_not(session_answers_record(p, a, 8, PART, k.now, &record));
    cr_assert_eq(session_commit(p, a, 8, k.now, &record, &k.err), -1);
    cr_assert_eq(k.err.kind, ERR_SESSION_ENDED);
    cr_assert_eq(record.len, 0);
    session_release(k.store, p);
    kit_done(&k);
}

/* All parts missing, or one at the front, in the middle, at the end. */
TEST(answers_ahead, a_commit_without_all_its_parts_is_refused_whole)
{
    struct kit k;

    ahead_init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}
