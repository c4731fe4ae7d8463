#include "ahead_kit.h"
#include "common/codec/json.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/record.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"
#include "worker/session/store.h"

enum { LONG = 100 << 10 };

/* One message of so many bytes of text, behind the others; other texts with another seed. */
static void add_long(struct buf *b, size_t bytes, unsigned seed)
{
    if (b->len > 1)
        buf_add_c(b, ',');
    buf_printf(b, "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00e9\\n%u ",
               seed);
    for (size_t i = 0; i < bytes; i++)
        buf_add_c(b, (char)('a' + (i * 7 + i / 26 + seed) % 26));
    buf_puts(b, "\"},{\"type\":\"text\",\"text\":\"!\"}]}");
}

static const char *conversation(struct kit *k, unsigned seed, unsigned n)
{
    struct buf b = {0};
    const char *text;

    buf_add_c(&b, '[');
    for (unsigned i = 0; i < n; i++)
        add_long(&b, LONG, seed + i);
    buf_add_c(&b, ']');
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

static struct record_head head_of(const struct kit *k, size_t record)
{
    struct record_in r = record_in_of(buf_str(&k->journal[record]));
    struct record_head h;

    cr_assert(record_read_head(&r, &h));
    return h;
}

static size_t of_type(const struct kit *k, enum record_type type)
{
    size_t n = 0;

    for (size_t i = 0; i < k->n_journal; i++)
        n += head_of(k, i).type == type;
    return n;
}

/* With parts of the size that is used for an ordinary call, not of the kit's few bytes. */
static void init(struct kit *k)
{
    kit_init(k, NULL);
    k->part_bytes = 64 << 10;
}

/* A store with what the records make. */
static struct session *replayed(struct kit *k, struct session_store **ret)
{
    struct session_defaults d;
    bool ended;

    session_defaults_init(&d);
    *ret = session_store_new(NULL, &d);
    for (size_t i = 0; i < k->n_journal; i++)
        cr_assert_eq(session_apply(*ret, buf_str(&k->journal[i]), &k->err), 0, "record %zu: %s", i,
                     k->err.text);
    return session_find(*ret, STR("w0-1"), &ended);
}

static void assert_same_messages(const struct session *a, const struct session *b)
{
    cr_assert_eq(a->forest.nodes.n, b->forest.nodes.n);
    cr_assert_eq(a->forest.envs.n, b->forest.envs.n);
    for (size_t i = 0; i < a->forest.envs.n; i++) {
        const struct prompt_env *x = a->forest.envs.at[i], *y = b->forest.envs.at[i];

        cr_assert_eq(x->hash, y->hash, "environment %zu", i);
        cr_assert(!x->tools == !y->tools && (!x->tools || json_equal(x->tools, y->tools)));
    }
    cr_assert_eq(a->forest.top_id, b->forest.top_id);
    for (size_t i = 0; i < a->forest.nodes.n; i++) {
        const struct message_node *x = a->forest.nodes.at[i], *y = b->forest.nodes.at[i];

        cr_assert(json_equal(x->msg.json, y->msg.json), "message %zu", i);
        cr_assert(str_eq(x->msg.content, y->msg.content), "message %zu", i);
        cr_assert_eq(x->hash, y->hash, "message %zu", i);
        cr_assert_eq(x->parent->id, y->parent->id, "message %zu", i);
        cr_assert_eq(x->depth, y->depth, "message %zu", i);
        cr_assert_eq(x->through ? x->through->id : UINT32_MAX,
                     y->through ? y->through->id : UINT32_MAX, "message %zu", i);
    }
}

static void assert_replays(struct kit *k)
{
    struct session_store *again;
    struct session *s = replayed(k, &again);
    struct buf live = {0}, made = {0};

    assert_same_messages(k->s, s);
    cr_assert_eq(session_write_state(k->s, true, &live, &k->err), 0);
    cr_assert_eq(session_write_state(s, true, &made, &k->err), 0);
    cr_assert(str_eq(buf_str(&live), buf_str(&made)), "%.*s\n%.*s", (int)MIN_OF(live.len, 2000),
              live.p, (int)MIN_OF(made.len, 2000), made.p);
    cr_assert_eq(k->s->texts_bytes, 0, "a call that runs here has its texts itself");
    buf_done(&live);
    buf_done(&made);
    session_store_free(again);
}

TEST(texts_ahead, what_is_recorded_in_parts_is_what_was_asked)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 3), NULL);
    cr_assert_eq(kit_texts(&k, p), 5);
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    cr_assert_eq(of_type(&k, RECORD_TEXTS), 5);
    cr_assert_lt(k.journal[k.n_journal - 1].len, 4 * 3 * (LONG + 100) + 1000, "ids, but no texts");
    assert_replays(&k);
    cr_assert_geq(kit_turn(&k, conversation(&k, 1, 4), "B"), 0);
    cr_assert_eq(k.s->forest.nodes.n, 6, "one message and one answer more");
    assert_replays(&k);
    kit_done(&k);
}

/* A list of n values, each written by `put` with its number. */
static const char *list_of(struct kit *k, unsigned n, void (*put)(struct buf *b, unsigned i))
{
    struct buf b = {0};
    const char *text;

    buf_add_c(&b, '[');
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            buf_add_c(&b, ',');
        put(&b, i);
    }
    buf_add_c(&b, ']');
    text = arena_str(&k->arena, buf_str(&b)).p;
    buf_done(&b);
    return text;
}

static void put_short(struct buf *b, unsigned i)
{
    buf_printf(b, "{\"role\":\"%s\",\"content\":\"said %u\"}", i % 2 ? "assistant" : "user", i);
}

static const char *short_ones(struct kit *k, unsigned n)
{
    return list_of(k, n, put_short);
}

static void put_tool(struct buf *b, unsigned i)
{
    buf_printf(b,
               "{\"type\":\"function\",\"function\":{\"name\":\"f%u\",\"description\":\"%0200u\"}}",
               i, i);
}

static const char *tools(struct kit *k, unsigned n)
{
    return list_of(k, n, put_tool);
}

/* Some are known, the others come ready to be hung; all are found again. */
TEST(texts_ahead, thousands_of_messages_are_hung_below_those_that_are_known)
{
    enum { KNOWN = 301, ALL = 12001 };

    struct kit k;
    struct session_plan *p;

    init(&k);
    cr_assert_geq(kit_turn(&k, short_ones(&k, KNOWN), "A"), 0);
    cr_assert_eq(k.s->forest.nodes.n, KNOWN + 1);
    p = kit_ask(&k, short_ones(&k, ALL), NULL);
    cr_assert_gt(kit_texts(&k, p), 0);
    cr_assert_eq(kit_answer(&k, p, "B", false), 0);
    cr_assert_eq(k.s->forest.nodes.n, ALL + 2);
    assert_replays(&k);
    cr_assert_geq(kit_turn(&k, short_ones(&k, ALL), "C"), 0);
    cr_assert_eq(k.s->forest.nodes.n, ALL + 3, "one answer more");
    assert_replays(&k);
    kit_done(&k);
}

/* Both asked before either was recorded: the second finds the first one's. */
TEST(texts_ahead, a_new_environment_of_many_tools_comes_ready)
{
    struct kit k;
    struct session_plan *p, *q;

    init(&k);
    p = kit_ask(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", tools(&k, 500));
    q = kit_ask(&k, "[{\"role\":\"user\",\"content\":\"b\"}]", tools(&k, 500));
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    cr_assert_eq(kit_answer(&k, q, "B", false), 0);
    cr_assert_eq(k.s->forest.envs.n, 1);
    cr_assert_eq(k.s->forest.envs.at[0]->tools->n, 500);
    p = kit_ask(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", tools(&k, 501));
    cr_assert_eq(kit_answer(&k, p, "C", false), 0);
    cr_assert_eq(k.s->forest.envs.n, 2);
    assert_replays(&k);
    kit_done(&k);
}

TEST(texts_ahead, texts_that_fit_one_part_stand_in_the_commit)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    k.part_bytes = 2 * LONG;
    p = kit_ask(&k, conversation(&k, 1, 1), NULL);
    cr_assert_eq(kit_texts(&k, p), 0);
    session_release(k.store, p);
    kit_done(&k);
}

/* Both asked before either was recorded; the second one's first messages are there by then. */
TEST(texts_ahead, messages_that_another_call_has_recorded_meanwhile_are_stored_once)
{
    struct kit k;
    struct session_plan *p, *q;

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    q = kit_ask(&k, conversation(&k, 1, 4), NULL);
    cr_assert_eq(kit_texts(&k, q), 7);
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    cr_assert_eq(kit_answer(&k, q, "B", false), 0);
    cr_assert_eq(k.s->forest.nodes.n, 6);
    assert_replays(&k);
    kit_done(&k);
}

/* What was recorded before the first part is not in them. */
TEST(texts_ahead, parts_begin_behind_what_other_calls_have_recorded)
{
    struct kit k;
    struct session_plan *p, *q;

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    q = kit_ask(&k, conversation(&k, 1, 4), NULL);
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    cr_assert_eq(of_type(&k, RECORD_TEXTS), 4);
    cr_assert_eq(kit_texts(&k, q), 4);
    cr_assert_eq(kit_answer(&k, q, "B", false), 0);
    cr_assert_eq(k.s->forest.nodes.n, 6);
    assert_replays(&k);
    p = kit_ask(&k, conversation(&k, 1, 4), NULL);
    cr_assert_eq(kit_texts(&k, p), 0);
    session_release(k.store, p);
    kit_done(&k);
}

/* Version 3: an older program says that it cannot read them. All else it can. */
TEST(texts_ahead, only_sessions_with_parts_need_a_newer_program)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    cr_assert_eq(kit_answer(&k, p, "B", false), 0);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(head_of(&k, i).version, i < 2 ? 2 : 3, "record %zu", i);
    kit_done(&k);
}

/* The same call number again, as after a crash before the commit. */
TEST(texts_ahead, parts_of_a_call_that_was_never_recorded_are_forgotten)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    cr_assert_eq(kit_texts(&k, p), 4);
    session_release_unused(k.store, p);
    p = kit_ask(&k, conversation(&k, 7, 3), NULL);
    cr_assert_eq(kit_texts(&k, p), 5);
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    assert_replays(&k);
    kit_done(&k);
}

TEST(texts_ahead, what_no_commit_names_leaves_memory_when_reading_ends)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    session_store_evicts(k.store, true);
    cr_assert_geq(kit_turn(&k, "[{\"role\":\"user\",\"content\":\"a\"}]", "A"), 0);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    cr_assert_eq(kit_texts(&k, p), 4);
    session_release(k.store, p);
    cr_assert_gt(session_evict(k.store, 0, SIZE_MAX), 0);
    session_load_begin(k.s);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_assert_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), 0);
    cr_assert_geq(k.s->texts_bytes, 2 * LONG);
    cr_assert_eq(session_load_end(k.s, true, k.now), 0);
    cr_assert_eq(k.s->texts_bytes, 0);
    kit_done(&k);
}

TEST(texts_ahead, an_ended_session_takes_no_parts)
{
    struct kit k;
    struct session_plan *p;
    struct buf record = {0};

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    cr_assert_eq(kit_end(&k, SESSION_END_ABORT), 0);
    cr_assert_not(session_texts_record(p, 1000, k.now, &record));
    cr_assert_eq(record.len, 0);
    session_release(k.store, p);
    kit_done(&k);
}

/* All parts missing, or one at the front, in the middle, at the end. */
TEST(texts_ahead, a_commit_without_all_its_parts_is_refused_whole)
{
    struct kit k;
    struct session_plan *p;

    init(&k);
    p = kit_ask(&k, conversation(&k, 1, 2), NULL);
    cr_assert_eq(kit_texts(&k, p), 4);
    cr_assert_eq(kit_answer(&k, p, "A", false), 0);
    ahead_refuses_gaps(&k);
    kit_done(&k);
}
