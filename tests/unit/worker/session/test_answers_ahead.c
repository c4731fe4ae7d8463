/* Several large answers of a call that are recorded before its commit. */
#include <string.h>

#include "kit.h"
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
        int32_t *ids = arena_calloc(&k->arena, n_ids, sizeof(*ids));
        float *lp = arena_calloc(&k->arena, n_ids, sizeof(*lp));

        for (uint32_t j = 0; j < n_ids; j++) {
            ids[j] = (int32_t)(seed + i * 7 + j) % 250;
            lp[j] = -(float)(seed + i + j);
        }
        all[i] = (struct session_answer){
            .ids = {ids, n_ids},
            .logprobs = lp,
            .finish_reason = STR("stop"),
            .message = kit_json(
                k, arena_printf(&k->arena,
                                "{\"role\":\"assistant\",\"content\":\"answer %u of %u\"}", i, seed)
                       .p),
            .response_id = arena_printf(&k->arena, "r-%u-%u", seed, i),
            .told = arena_printf(&k->arena, "told %u", i),
        };
        if (i % 3 == 1)
            all[i].parse_warning = STR("a warning");
        if (i % 3 == 2) {
            all[i].rows[ROWS_EXPERTS] = (struct token_rows){STR("block of 17 bytes"), 0, 1, 1, 1};
            all[i].drifted_tokens = i;
        }
    }
    return all;
}

static void apply(struct kit *k, struct buf *record)
{
    cr_assert_eq(session_apply(k->store, buf_str(record), &k->err), 0, "%s", k->err.text);
    k->journal[k->n_journal++] = *record;
    *record = (struct buf){0};
}

/* In how many parts. */
static size_t put_parts(struct kit *k, struct session_plan *p, const struct session_answer *answers,
                        uint32_t n)
{
    struct buf record = {0};
    size_t parts = 0;

    while (session_answers_record(p, answers, n, PART, ++k->now, &record)) {
        cr_assert_lt(record.len, PART + MAX_OF(PART, 10 * answers[0].ids.n));
        apply(k, &record);
        parts++;
    }
    return parts;
}

static void put_commit(struct kit *k, struct session_plan *p, const struct session_answer *answers,
                       uint32_t n)
{
    struct buf record = {0};

    cr_assert_eq(session_commit(p, answers, n, ++k->now, &record, &k->err), 0, "%s", k->err.text);
    apply(k, &record);
}

/* A call with n answers; in how many parts they were recorded. */
static size_t turn(struct kit *k, const char *messages, uint32_t n, uint32_t n_ids, unsigned seed)
{
    struct session_answer *answers = answers_of(k, n, n_ids, seed);
    struct session_plan *p = kit_ask(k, messages, NULL);
    size_t parts;

    cr_assert(p, "%s", k->err.text);
    parts = put_parts(k, p, answers, n);
    put_commit(k, p, answers, n);
    return parts;
}

static struct record_head head_of(const struct kit *k, size_t record)
{
    struct record_in r = record_in_of(buf_str(&k->journal[record]));
    struct record_head h;

    cr_assert(record_read_head(&r, &h));
    return h;
}

/* A session_source; ctx is the kit. */
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

static void init(struct kit *k, const char *options)
{
    kit_init(k, options);
    session_store_evicts(k->store, true);
    session_store_source(k->store, source, k);
}

static struct session_store *replayed(struct kit *k, bool lazy, struct session **ret)
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
    session_free_answers(*ret); /* as at the end of a reading */
    return st;
}

static void state_of(struct session *s, struct buf *ret)
{
    struct err e;

    buf_clear(ret);
    cr_assert_eq(session_write_state(s, true, ret, &e), 0, "%s", e.text);
}

/* What a commit without parts makes of the same answers must be what these parts made. */
static void assert_same_answers(struct session *s, const struct session_answer *answers, uint32_t n,
                                size_t first)
{
    struct err e;

    for (uint32_t i = 0; i < n; i++) {
        const struct checkpoint *t = s->forest.checkpoints.at[first + i];
        const struct session_answer *a = &answers[i];

        cr_assert_eq(session_recall_checkpoint(s, t, &e), 0, "%s", e.text);
        cr_assert_eq(t->answer, i);
        cr_assert_eq(t->n, a->ids.n);
        cr_assert_arr_eq(checkpoint_ids(t), a->ids.at, a->ids.n * sizeof(*a->ids.at));
        cr_assert_arr_eq(checkpoint_logprobs(t), a->logprobs, a->ids.n * sizeof(float));
        cr_assert(str_eq(t->told, a->told));
        cr_assert(str_eq(t->response_id, a->response_id));
        cr_assert(str_eq(t->parse_warning, a->parse_warning));
        cr_assert(str_eq(checkpoint_block(t, ROWS_EXPERTS), a->rows[ROWS_EXPERTS].block));
        cr_assert_eq(t->drifted_tokens, a->drifted_tokens);
        cr_assert(str_eq_c(t->finish_reason, "stop"));
        cr_assert_eq(t->total, t->n_context + t->n + (t->parent ? t->parent->total : 0) - t->trim);
        cr_assert(t->node && t->node->newest);
    }
}

static void assert_replays(struct kit *k)
{
    struct buf live = {0}, made = {0};
    struct session_totals here, there;
    struct session_store *again;
    struct session *s;

    state_of(k->s, &live);
    again = replayed(k, false, &s);
    state_of(s, &made);
    cr_assert(str_eq(buf_str(&live), buf_str(&made)));
    cr_assert_eq(s->forest.top_id, k->s->forest.top_id);
    cr_assert_eq(s->forest.tokens, k->s->forest.tokens);
    cr_assert_eq(s->payloads.n, k->s->payloads.n);
    cr_assert_eq(s->payload_bytes, k->s->payload_bytes + k->s->payload_evicted);
    cr_assert_eq(k->s->answers_ahead.n, 0);
    cr_assert_eq(k->s->answers_bytes, 0);
    session_store_totals(again, &here);
    session_store_free(again);
    again = replayed(k, true, &s); /* sums are told by the commits alone */
    session_store_totals(again, &there);
    cr_assert_eq(here.tokens, there.tokens);
    session_store_free(again);
    buf_done(&live);
    buf_done(&made);
}

TEST(answers_ahead, what_is_recorded_in_parts_is_what_was_answered)
{
    struct kit k;

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    cr_assert_eq(k.n_journal, 6);
    for (size_t i = 1; i < 5; i++)
        cr_assert_eq(head_of(&k, i).type, RECORD_ANSWERS);
    cr_assert_eq(head_of(&k, 5).type, RECORD_COMMIT);
    cr_assert_lt(k.journal[5].len, 300, "it has none of them");
    assert_same_answers(k.s, answers_of(&k, 16, IDS, 1), 16, 0);
    assert_replays(&k);
    cr_assert_geq(kit_turn(&k,
                           "[{\"role\":\"user\",\"content\":\"a\"},"
                           "{\"role\":\"assistant\",\"content\":\"answer 9 of 1\"},"
                           "{\"role\":\"user\",\"content\":\"b\"}]",
                           "B"),
                  0);
    cr_assert_eq(k.s->forest.checkpoints.at[16]->parent, k.s->forest.checkpoints.at[9]);
    assert_replays(&k);
    kit_done(&k);
}

/* A session without parts and one with them have the same state, but for times. */
TEST(answers_ahead, parts_make_the_same_session)
{
    struct kit k, l;
    struct session_answer *answers;
    struct session_plan *p;
    struct buf one = {0}, other = {0};

    init(&k, NULL);
    init(&l, NULL);
    p = kit_ask(&k, ASK, NULL);
    k.now = 5000;
    answers = answers_of(&k, 16, IDS, 1);
    put_commit(&k, p, answers, 16);
    cr_assert_eq(head_of(&k, 1).version, 2);
    p = kit_ask(&l, ASK, NULL);
    cr_assert_eq(put_parts(&l, p, answers, 16), 4);
    l.now = 5000;
    put_commit(&l, p, answers, 16);
    state_of(k.s, &one);
    state_of(l.s, &other);
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

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 1, 10 * IDS, 1), 0);
    cr_assert_eq(turn(&k, ASK, 3, IDS, 2), 0);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(head_of(&k, i).version, 2);
    assert_replays(&k);
    kit_done(&k);
}

/* Each is more than a part. */
TEST(answers_ahead, a_record_holds_whole_answers)
{
    struct kit k;

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 3, 10 * IDS, 1), 3);
    assert_same_answers(k.s, answers_of(&k, 3, 10 * IDS, 1), 3, 0);
    assert_replays(&k);
    kit_done(&k);
}

/* Version 3: an older program says that it cannot read them. */
TEST(answers_ahead, only_sessions_with_parts_need_a_newer_program)
{
    struct kit k;

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 8, IDS, 1), 2);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(head_of(&k, i).version, i == 0 ? 2 : 3);
    kit_done(&k);
}

TEST(answers_ahead, parts_of_calls_that_run_at_once_are_kept_apart)
{
    struct kit k;
    struct session_answer *a, *b;
    struct session_plan *p, *q;
    struct buf record = {0};

    init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    q = kit_ask(&k, ASK, NULL);
    a = answers_of(&k, 8, IDS, 1);
    b = answers_of(&k, 8, IDS, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert(session_answers_record(p, a, 8, PART, ++k.now, &record));
        apply(&k, &record);
        cr_assert(session_answers_record(q, b, 8, PART, ++k.now, &record));
        apply(&k, &record);
    }
    put_commit(&k, q, b, 8);
    put_commit(&k, p, a, 8);
    assert_same_answers(k.s, b, 8, 0);
    assert_same_answers(k.s, a, 8, 8);
    assert_replays(&k);
    kit_done(&k);
}

TEST(answers_ahead, a_call_that_fails_leaves_nothing)
{
    struct kit k;
    struct session_answer *answers;
    struct session_totals before, after;
    struct session_plan *p;

    init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    session_store_totals(k.store, &before);
    p = kit_ask(&k, ASK, NULL);
    answers = answers_of(&k, 16, IDS, 1);
    cr_assert_eq(put_parts(&k, p, answers, 16), 4);
    session_store_totals(k.store, &after);
    cr_assert_geq(after.bytes - before.bytes, 16 * IDS * 8);
    cr_assert_eq(after.tokens, before.tokens);
    session_release(k.store, p);
    session_store_totals(k.store, &after);
    cr_assert_lt(after.bytes - before.bytes, 2000, "tables that have grown");
    cr_assert_eq(k.s->answers_ahead.n, 0);
    cr_assert_eq(k.s->payloads.n, 1);
    cr_assert_eq(turn(&k, ASK, 8, IDS, 2), 2);
    assert_replays(&k);
    kit_done(&k);
}

/* The same number again, as after a crash before the commit; of more parts than its own call has,
 * or fewer. */
TEST(answers_ahead, parts_of_a_call_that_was_never_recorded_are_forgotten)
{
    for (unsigned n = 4; n <= 24; n += 4) {
        struct kit k;
        struct session_plan *p;

        init(&k, NULL);
        p = kit_ask(&k, ASK, NULL);
        (void)put_parts(&k, p, answers_of(&k, n, IDS, 1), n);
        session_release_unused(k.store, p);
        if (n % 8 == 0)
            cr_assert_eq(turn(&k, ASK, 12, IDS, 2), 3);
        else
            cr_assert_eq(turn(&k, ASK, 2, 10, 2), 0);
        assert_replays(&k);
        kit_done(&k);
    }
}

TEST(answers_ahead, what_no_commit_names_leaves_memory_when_reading_ends)
{
    struct kit k;
    struct session_plan *p;

    init(&k, NULL);
    cr_assert_geq(kit_turn(&k, ASK, "A"), 0);
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(put_parts(&k, p, answers_of(&k, 16, IDS, 1), 16), 4);
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

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    answers = answers_of(&k, 16, IDS, 1);
    state_of(k.s, &want);
    session_pin(k.s);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 5, "the commit has context ids");
        cr_assert_eq(k.s->payload_bytes, 0);
        if (round == 0) {
            state_of(k.s, &got);
            cr_assert(str_eq(buf_str(&want), buf_str(&got)));
        } else if (round == 1) {
            past = session_past(k.s, &tmp, 0, &k.err);
            cr_assert(past, "%s", k.err.text);
            cr_assert_eq(past->n_answers, 16);
            for (int i = 0; i < 16; i++)
                cr_assert_arr_eq(past->answers[i].ids.at, answers[i].ids.at, IDS * sizeof(int32_t));
        } else {
            assert_same_answers(k.s, answers, 16, 0);
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

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    p = kit_ask(&k,
                "[{\"role\":\"user\",\"content\":\"a\"},"
                "{\"role\":\"assistant\",\"content\":\"answer 9 of 1\"},"
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

    init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    answers = answers_of(&k, 16, IDS, 1);
    cr_assert_eq(put_parts(&k, p, answers, 16), 4);
    cr_assert_eq(session_evict(k.store, 0, SIZE_MAX), 4);
    put_commit(&k, p, answers, 16);
    assert_same_answers(k.s, answers, 16, 0);
    assert_replays(&k);
    bulk = k.s->payload_bytes + k.s->payload_evicted;
    p = kit_ask(&k, ASK, NULL);
    cr_assert_eq(put_parts(&k, p, answers_of(&k, 16, IDS, 5), 16), 4);
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

    init(&k, NULL);
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
        cr_assert_eq(put_parts(&k, p, answers, 12), with_ids ? 6 : 3);
        put_commit(&k, p, answers, 12);
        for (size_t i = first; i < first + 12; i++) {
            const struct checkpoint *t = k.s->forest.checkpoints.at[i];

            cr_assert_eq(t->text, !with_ids);
            cr_assert_eq(t->parent, with_ids ? NULL : k.s->forest.checkpoints.at[0]);
        }
        if (with_ids)
            assert_same_answers(k.s, answers, 12, first);
        assert_replays(&k);
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

        init(&k, options[i]);
        cr_assert_eq(turn(&k, ASK, 8, IDS, 1), 2);
        cr_assert_geq(kit_turn(&k,
                               "[{\"role\":\"user\",\"content\":\"a\"},"
                               "{\"role\":\"assistant\",\"content\":\"answer 0 of 1\"},"
                               "{\"role\":\"user\",\"content\":\"b\"}]",
                               "B"),
                      0);
        cr_assert_eq(k.s->forest.checkpoints.at[8]->parent, k.s->forest.checkpoints.at[0]);
        state_of(k.s, &live);
        again = replayed(&k, false, &s);
        state_of(s, &made);
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

    init(&k, NULL);
    p = kit_ask(&k, ASK, NULL);
    a = answers_of(&k, 8, IDS, 1);
    cr_assert(session_answers_record(p, a, 8, PART, k.now, &record));
    apply(&k, &record);
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

    init(&k, NULL);
    cr_assert_eq(turn(&k, ASK, 16, IDS, 1), 4);
    for (size_t missing = 0; missing <= 4; missing++) {
        struct session_defaults d;
        struct session_store *st;
        struct session *s;
        bool ended;
        int rc = 0;

        session_defaults_init(&d);
        st = session_store_new(NULL, &d);
        for (size_t i = 0; i < k.n_journal; i++)
            if (i == 0 || i + 1 == k.n_journal || (missing > 0 && i != missing))
                rc = session_apply(st, buf_str(&k.journal[i]), &k.err);
        cr_assert_eq(rc, -1, "without %zu", missing);
        s = session_find(st, STR("w0-1"), &ended);
        cr_assert_eq(s->forest.nodes.n, 0);
        cr_assert_eq(s->forest.calls.n, 0);
        cr_assert_eq(s->forest.checkpoints.n, 0);
        session_store_free(st);
    }
    kit_done(&k);
}
