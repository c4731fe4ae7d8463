/* Commits that are read back with messages that were made ready from their records. */
#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/session.h"
#include "worker/session/session_texts.h"
#include "worker/session/store.h"
#include "worker/session/text_parts.h"

enum { LONG = 100 << 10 };

/* n long messages, as JSON. */
static const char *conversation(struct kit *k, unsigned n)
{
    struct buf b = {0};
    const char *text;

    for (unsigned i = 0; i < n; i++) {
        buf_printf(&b, "%s{\"role\":\"user\",\"content\":\"%u ", i ? "," : "[", i);
        for (size_t at = 0; at < LONG; at++)
            buf_add_c(&b, (char)('a' + (at * 7 + at / 26 + i) % 26));
        buf_puts(&b, "\"}");
    }
    buf_add_c(&b, ']');
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

/* Two calls with their texts ahead and one with them inside; what they made is in `state`. */
static void init(struct kit *k, struct buf *state)
{
    kit_init(k, NULL);
    k->part_bytes = 64 << 10;
    session_store_evicts(k->store, true);
    cr_assert_geq(kit_turn(k, conversation(k, 2), "A"), 0);
    cr_assert_geq(kit_turn(k, conversation(k, 5), "B"), 0);
    k->part_bytes = 1 << 20;
    cr_assert_geq(kit_turn(k, conversation(k, 6), "C"), 0);
    cr_assert_eq(session_write_state(k->s, true, state, &k->err), 0);
}

static void evict(struct kit *k)
{
    cr_assert_gt(session_evict(k->store, 0, SIZE_MAX), 0);
    cr_assert_not(session_resident(k->s));
}

/* With a helper's work for each record that is long, cancelled or not; how many were. */
static unsigned read_back(struct kit *k, bool cancelled, atomic_size_t *sum)
{
    static const atomic_bool yes = true;
    unsigned n = 0;

    session_load_begin(k->s);
    for (size_t i = 0; i < k->n_journal; i++) {
        struct session_texts *t = session_texts_take(k->s, buf_str(&k->journal[i]), sum);

        if (t) {
            cr_assert_geq(atomic_load(sum), LONG);
            cancel_flag = cancelled ? &yes : NULL;
            session_texts_make(t);
            cancel_flag = NULL;
            session_texts_give(k->s, t);
            cr_assert_eq(!k->s->read_env && !k->s->read_ready, cancelled);
            n++;
        }
        session_load_at(k->s, i);
        cr_assert_eq(session_apply(k->store, buf_str(&k->journal[i]), &k->err), 0, "record %zu: %s",
                     i, k->err.text);
        session_texts_end(k->s);
        cr_assert_eq(atomic_load(sum), 0, "what is the session's is counted there");
    }
    cr_assert_eq(session_load_end(k->s, true, k->now), 0);
    return n;
}

static void assert_same(struct kit *k, const struct buf *state)
{
    struct buf made = {0};

    cr_assert_eq(session_write_state(k->s, true, &made, &k->err), 0);
    cr_assert(str_eq(buf_str(&made), buf_str(state)), "%.*s\n%.*s", (int)MIN_OF(made.len, 2000),
              made.p, (int)MIN_OF(state->len, 2000), state->p);
    cr_assert_eq(k->s->texts_bytes, 0);
    buf_done(&made);
}

TEST(session_texts, what_is_made_ready_is_what_the_record_makes)
{
    struct kit k;
    struct buf state = {0};
    atomic_size_t sum = 0;

    init(&k, &state);
    evict(&k);
    cr_assert_eq(read_back(&k, false, &sum), 3);
    assert_same(&k, &state);
    cr_assert_eq(k.s->forest.nodes.n, 9);
    cr_assert_geq(kit_turn(&k, conversation(&k, 7), "D"), 0);
    cr_assert_eq(k.s->forest.nodes.n, 11, "it goes on where it was");
    buf_done(&state);
    kit_done(&k);
}

TEST(session_texts, what_a_helper_has_no_time_for_the_record_makes_itself)
{
    struct kit k;
    struct buf state = {0};
    atomic_size_t sum = 0;

    init(&k, &state);
    evict(&k);
    cr_assert_eq(read_back(&k, true, &sum), 3);
    assert_same(&k, &state);
    buf_done(&state);
    kit_done(&k);
}

/* As when the worker ends, or the helper is stuck: the session comes back another time. */
TEST(session_texts, a_load_that_ends_in_between_loses_nothing)
{
    struct kit k;
    struct buf state = {0};
    atomic_size_t sum = 0;

    init(&k, &state);
    for (int given = 0; given < 2; given++) {
        struct session_texts *t = NULL;

        evict(&k);
        session_load_begin(k.s);
        for (size_t i = 0; i < k.n_journal && !t; i++) {
            t = session_texts_take(k.s, buf_str(&k.journal[i]), &sum);
            if (!t)
                cr_assert_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), 0);
        }
        session_texts_make(t);
        if (given)
            session_texts_give(k.s, t);
        else
            session_texts_free(t);
        cr_assert_eq(session_load_end(k.s, false, k.now), -1);
        cr_assert_eq(atomic_load(&sum), 0);
        (void)read_back(&k, false, &sum);
        assert_same(&k, &state);
    }
    buf_done(&state);
    kit_done(&k);
}

/* A function whose description is long, as JSON. */
static const char *long_tools(struct kit *k)
{
    struct buf b = {0};
    const char *text;

    buf_puts(&b, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"");
    for (size_t at = 0; at < LONG; at++)
        buf_add_c(&b, (char)('a' + (at * 5 + at / 26) % 26));
    buf_puts(&b, "\"}}]");
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

/* They are the environment of a call with one short message; what asks for them again finds it. */
TEST(session_texts, long_tools_are_made_ready_as_well)
{
    struct kit k;
    struct buf state = {0};
    atomic_size_t sum = 0;
    struct session_plan *p;

    kit_init(&k, NULL);
    session_store_evicts(k.store, true);
    p = kit_ask(&k, "[{\"role\":\"user\",\"content\":\"hi\"}]", long_tools(&k));
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    cr_assert_eq(session_write_state(k.s, true, &state, &k.err), 0);
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        evict(&k);
        cr_assert_eq(read_back(&k, cancelled, &sum), 1);
        assert_same(&k, &state);
        cr_assert_eq(k.s->forest.envs.n, 1);
    }
    p = kit_ask(&k, "[{\"role\":\"user\",\"content\":\"again\"}]", long_tools(&k));
    cr_assert_eq(kit_answer(&k, p, "B", false), 0);
    cr_assert_eq(k.s->forest.envs.n, 1);
    buf_done(&state);
    kit_done(&k);
}

/* A part is missing in the middle: the same error as without a helper, and nothing is left. */
TEST(session_texts, torn_texts_are_refused_with_their_record)
{
    struct kit k;
    struct buf state = {0};
    atomic_size_t sum = 0;
    size_t refused = 0;

    init(&k, &state);
    evict(&k);
    session_load_begin(k.s);
    for (size_t i = 0; i < k.n_journal; i++) {
        struct session_texts *t;

        if (i == 3)
            continue;
        t = session_texts_take(k.s, buf_str(&k.journal[i]), &sum);
        if (t) {
            session_texts_make(t);
            session_texts_give(k.s, t);
        }
        refused += session_apply(k.store, buf_str(&k.journal[i]), &k.err) != 0;
        session_texts_end(k.s);
    }
    cr_assert_geq(refused, 3, "a part, its commit, what stands on that");
    cr_assert_eq(k.s->forest.nodes.n, 0);
    cr_assert_eq(session_load_end(k.s, true, k.now), 0);
    cr_assert_eq(k.s->texts_bytes, 0);
    cr_assert_eq(atomic_load(&sum), 0);
    buf_done(&state);
    kit_done(&k);
}

TEST(text_parts, small_and_large_parts_are_one_text_in_their_order)
{
    struct text_parts t = {0};
    struct buf all = {0}, part = {0};

    cr_assert(str_eq(text_parts_whole(&t), STR("")));
    for (unsigned i = 0; i < 300; i++) {
        buf_clear(&part);
        for (size_t n = i % 50 == 7 ? 300000 : i * 11 % 9000; n > 0; n--)
            buf_add_c(&part, (char)('a' + (n + i) % 26));
        buf_add_str(&all, buf_str(&part));
        text_parts_add(&t, buf_str(&part));
        cr_assert_eq(t.len, all.len);
        cr_assert_geq(t.bytes, t.len);
        if (i % 100 == 50)
            cr_assert(str_eq(text_parts_whole(&t), buf_str(&all)));
    }
    cr_assert(str_eq(text_parts_whole(&t), buf_str(&all)));
    text_parts_done(&t);
    cr_assert_eq(t.bytes, 0);
    buf_done(&all);
    buf_done(&part);
}
