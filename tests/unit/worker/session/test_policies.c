#include <stdio.h>

#include "common/codec/json.h"
#include "costs.h"
#include "kit.h"
#include "testing.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_past.h"
#include "worker/session/store/session_totals.h"
#include "worker/session/store/store.h"
#include "worker/text/request/chat.h"

#define U(t) "{\"role\":\"user\",\"content\":\"" t "\"}"
#define A(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"

TEST(linear, goes_back_one_turn_and_no_further)
{
    struct kit k;

    kit_init(&k, "{\"history\":\"linear\"}");
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
    cr_expect_geq(kit_turn(&k, "[" U("q") "," A("a") "," U("r") "]", "b"), 0);
    cr_expect_geq(kit_turn(&k, "[" U("q") "," A("a") "," U("other") "]", "c"), 0);
    cr_expect_eq(kit_count(&k, "num_records"), 2);
    cr_expect_eq(kit_count(&k, "rollback_count"), 1);
    cr_expect_null(kit_ask(&k, "[" U("q") "]", NULL));
    cr_expect_eq(k.err.kind, ERR_HISTORY_CONFLICT);
    cr_expect(strstr(k.err.text, "discard_count=2 exceeds max_assistant_rollback_steps=1 (stored "
                                 "has 4 messages, request has 1"));
    cr_expect_null(kit_ask(
        &k,
        "[" U("q") "," A("a") "," U("other") "," A("c") ",{\"role\":\"robot\",\"content\":\"x\"}]",
        NULL));
    cr_expect_eq(k.err.kind, ERR_HISTORY_CONFLICT);
    kit_done(&k);
}

TEST(linear, the_first_of_two_commits_wins)
{
    struct kit k;
    struct session_plan *p, *q;

    kit_init(&k, "{\"history\":\"linear\"}");
    p = kit_ask(&k, "[" U("q") "]", NULL);
    q = kit_ask(&k, "[" U("q") "]", NULL);
    cr_expect_eq(kit_answer(&k, q, "a", false), 0);
    cr_expect_eq(kit_answer(&k, p, "b", false), -1);
    cr_expect_eq(k.err.kind, ERR_STATE_CONFLICT);
    cr_expect(err_retry(&k.err));
    cr_expect_eq(kit_count(&k, "num_records"), 1);
    kit_done(&k);
}

TEST(chains, reserve_roll_back_and_close)
{
    struct kit k;
    struct session_plan *p, *q;

    kit_init(&k, "{\"history\":\"chains\",\"prompt_length\":60,\"response_length\":30}");
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
    p = kit_ask(&k, "[" U("q") "," A("a") "," U("r") "]", NULL);
    q = kit_ask(&k, "[" U("q") "," A("a") "," U("r") "]", NULL); /* the chain is reserved */
    cr_expect_gt(p->reused, 0);
    cr_expect_eq(q->reused, 0);
    session_release(k.store, p);
    session_release(k.store, q);
    p = kit_ask(&k, "[" U("q") "," A("a") "," U("r") "]", NULL);
    cr_expect_gt(p->reused, 0); /* the failure released it */
    cr_expect_eq(kit_answer(&k, p, "bb", false), 0);
    cr_expect_eq(kit_count(&k, "num_active_chains"), 1);
    /* The last answer was rewritten: it is rolled back, and its three tokens are dropped. */
    cr_expect_geq(kit_turn(&k, "[" U("q") "," A("a") "," U("r") "," A("x") "," U("s") "]", "c"), 0);
    cr_expect_eq(kit_count(&k, "rollback_count"), 1);
    cr_expect_eq(kit_count(&k, "rollback_dropped_trainable_tokens_total"), 3);
    p = kit_ask(
        &k,
        "[" U("q") "," A("a") "," U("r") "," A("x") "," U("s") "," A("c") "," U("0123456789") "]",
        NULL);
    cr_assert(p && p->exhausted);
    cr_expect_eq(kit_answer(&k, p, "", false), 0);
    cr_expect_eq(kit_count(&k, "num_active_chains"), 0);
    cr_expect_eq(kit_count(&k, "num_trajectories"), 1);
    kit_done(&k);
}

/* The call without space has rolled the chain back: the answer is dropped. Earlier messages stay,
 * without the generation prompt. */
TEST(chains, closed_by_a_call_that_rolled_it_back)
{
    struct kit k;
    struct session_plan *p;
    const struct json *ids;
    size_t n;

    kit_init(&k, "{\"history\":\"chains\",\"prompt_length\":70,\"response_length\":30}");
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
    cr_expect_geq(kit_turn(&k, "[" U("q") "," A("a") "," U("r") "]", "bb"), 0);
    p = kit_ask(&k,
                "[" U("q") "," A("a") "," U("r") "," A("x") "," U("01234567890123456789") "," U(
                    "01234567890123456789") "]",
                NULL);
    cr_assert(p && p->exhausted);
    cr_assert_eq(p->prompt.n_parts, 1);
    n = p->prompt.n;
    cr_expect_eq(p->prompt.parts[0].at[n - 1], 257);
    cr_expect_eq(p->prompt.parts[0].at[n - 2], 'r');
    cr_expect_eq(kit_answer(&k, p, "", false), 0);
    cr_expect_eq(kit_count(&k, "num_trajectories"), 1);
    cr_expect_eq(kit_count(&k, "rollback_count"), 1);
    cr_expect_eq(kit_count(&k, "rollback_dropped_trainable_tokens_total"), 3);
    ids = json_get(kit_state(&k), "accumulated_token_ids");
    cr_expect_eq(ids->n, n);
    kit_done(&k);
}

TEST_WITH(store, bad_options_name_their_field, kit)
{
    static const struct {
        const char *options, *field;
    } cases[] = {{"{\"history\":\"bush\"}", "history"},
                 {"{\"history\":3}", "history"},
                 {"{\"message_matcher\":\"vague\"}", "message_matcher"},
                 {"{\"idempotent_retry\":\"yes\"}", "idempotent_retry"},
                 {"{\"prompt_length\":-1}", "prompt_length"},
                 {"{\"ttl_s\":1.5}", "ttl_s"},
                 {"{\"labels\":[]}", "labels"},
                 {"{\"lock_sampling\":[1]}", "lock_sampling"},
                 {"{\"timeline_compare_level\":\"x\"}", "timeline_compare_level"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct buf record = {0};

        cr_expect_eq(session_create_record(f->store, STR("w0-2"), kit_json(f, cases[i].options), 1,
                                           &record, &f->err),
                     -1);
        cr_expect_str_eq(f->err.param, cases[i].field);
        cr_expect_eq(record.len, 0);
        buf_done(&record);
    }
}

TEST(store, an_end_during_a_call_leaves_no_trace)
{
    static const enum session_end ends[] = {SESSION_END_DELETE, SESSION_END_ABORT,
                                            SESSION_END_FINALIZE, SESSION_END_EXPIRE};

    for (size_t i = 0; i < 4; i++) {
        struct kit k;
        struct session_plan *p;
        bool ended;

        kit_init(&k, NULL);
        cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
        p = kit_ask(&k, "[" U("q") "," A("a") "," U("r") "]", NULL);
        cr_expect_eq(kit_end(&k, ends[i]), 0);
        cr_expect_null(k.s);
        cr_expect_eq(kit_answer(&k, p, "late", false), -1);
        cr_expect_eq(k.err.kind, ERR_SESSION_ENDED);
        cr_expect_null(session_find(k.store, STR("w0-1"), &ended));
        cr_expect(ended);
        cr_expect_eq(session_find_any(k.store, STR("w0-1"), &ended) != NULL, i >= 2);
        kit_done(&k);
    }
}

/* Tokens can be counted while calls run. */
TEST(chains, a_look_leaves_its_chain_to_calls)
{
    static const char *const longer = "[" U("q") "," A("a") "," U("more") "]";
    struct session_call_input in = {.look = true};
    struct session_plan *look;
    struct chat chat = {0};
    struct kit k;

    kit_init(&k, "{\"history\":\"chains\"}");
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
    chat.messages = kit_json(&k, longer);
    in.chat = &chat;
    cr_assert_eq(session_prepare(k.s, NULL, &k.arena, &in, &look, &k.err), 0, "%s", k.err.text);
    cr_expect_eq(kit_turn(&k, longer, "b"), CAUSE_EXTENDED);
    session_release_unused(k.store, look);
    kit_done(&k);
}

/* Sweeps like an owner that cannot check all sessions in one step. */
TEST(store, ends_are_swept_a_few_at_a_time)
{
    enum { N = 10 };

    struct session_defaults d;
    struct kit k;
    bool ended;
    int steps = 1;

    session_defaults_init(&d);
    d.export_retention_ms = 100;
    d.tombstone_ttl_ms = 200;
    kit_defaults(&k, &d, NULL);
    for (int i = 0; i < N; i++) {
        char id[8];

        (void)snprintf(id, sizeof(id), "w0-b%d", i);
        session_bury(k.store, str_cstr(id), k.now);
    }
    while (session_sweep_ends(k.store, k.now + 150, 3))
        steps++;
    cr_expect_eq(steps, N / 3 + 1);
    cr_expect_null(session_find(k.store, STR("w0-b9"), &ended));
    cr_expect(ended, "its tombstone stays");
    for (steps = 1; session_sweep_ends(k.store, k.now + 250, 3); steps++) {
    }
    cr_expect_gt(steps, N / 3);
    cr_expect_leq(steps, 2 * (N / 3 + 1), "none is looked at again");
    cr_expect_null(session_find(k.store, STR("w0-b9"), &ended));
    cr_expect_not(ended);
    kit_done(&k);
}

TEST(store, finalized_sessions_leave_memory_and_come_back)
{
    struct session_defaults d;
    struct session_totals t;
    struct kit k;
    struct buf before = {0}, after = {0};
    struct session *again;
    bool ended;

    session_defaults_init(&d);
    d.evict_after_ms = 500;
    d.export_retention_ms = 10000;
    d.tombstone_ttl_ms = 20000;
    kit_defaults(&k, &d, "{\"labels\":{\"a\":\"b\"}}");
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "a"), 0);
    cr_expect_geq(kit_turn(&k, "[" U("q") "]", "b"), 0);
    cr_expect_eq(kit_end(&k, SESSION_END_FINALIZE), 0);
    cr_assert_eq(
        session_write_state(session_find_any(k.store, STR("w0-1"), &ended), true, &before, &k.err),
        0);
    session_sweep(k.store, k.now + 400);
    cr_expect(session_find_any(k.store, STR("w0-1"), &ended));
    session_sweep(k.store, k.now + 600);
    cr_expect_null(session_find_any(k.store, STR("w0-1"), &ended));
    cr_expect(ended);
    session_store_totals(k.store, &t);
    cr_expect_eq(t.tokens, 0);

    cr_expect_null(session_revive(k.store, STR("w0-1"), k.now + 10001));
    again = session_revive(k.store, STR("w0-1"), k.now + 700);
    cr_assert(again);
    session_load_begin(again);
    for (size_t i = 0; i < k.n_journal; i++)
        cr_expect_eq(session_apply(k.store, buf_str(&k.journal[i]), &k.err), 0);
    cr_expect_eq(session_load_end(again, true, k.now + 700), 0);
    cr_expect_null(session_find(k.store, STR("w0-1"), &ended));
    cr_expect(ended);
    cr_assert_eq(
        session_write_state(session_find_any(k.store, STR("w0-1"), &ended), true, &after, &k.err),
        0);
    cr_expect(str_eq(buf_str(&before), buf_str(&after)));
    session_sweep(k.store, k.now + 1300);
    cr_expect_null(session_find_any(k.store, STR("w0-1"), &ended));
    session_sweep(k.store, k.now + 20001);
    cr_expect_null(session_find(k.store, STR("w0-1"), &ended));
    cr_expect_not(ended);
    buf_done(&before);
    buf_done(&after);
    kit_done(&k);
}

TEST_WITH(store, a_pinned_session_outlives_its_end, kit)
{
    struct session *s;

    s = f->s;
    session_pin(s);
    cr_expect_eq(kit_end(f, SESSION_END_DELETE), 0);
    cr_expect(str_eq_c(session_id(s), "w0-1"));
    session_unpin(f->store, s);
}

TEST_WITH(past, answers_are_found_by_request_and_by_response, kit)
{
    const uint64_t hash[2] = {42, 7}, other[2] = {43, 7};
    const struct str none = {0};
    const struct session_past_call *c;
    const struct json *messages;
    uint64_t call;

    f->body_hash = 42;
    cr_expect_geq(kit_turn(f, "[" U("q") "]", "a"), 0);
    cr_expect_geq(kit_turn(f, "[" U("q") "]", "b"), 0);
    cr_assert(session_find_call(f->s, hash, none, &call));
    c = session_past(f->s, &f->arena, call, true, &f->err);
    cr_assert(c);
    cr_expect_eq(c->n_answers, 1);
    cr_expect_eq(c->call, 1); /* the newest */
    cr_expect(str_eq_c(json_string(json_get(c->answers[0].message, "content")), "b"));
    cr_expect_eq(c->completion_tokens, 2);
    cr_expect_not(session_find_call(f->s, other, none, &call));
    cr_expect(session_find_call(f->s, hash, STR("key"), &call)); /* the old calls had no key */
    c = session_past(f->s, &f->arena, 0, true, &f->err);
    cr_assert(c);
    cr_expect(str_eq_c(json_string(json_get(c->answers[0].message, "content")), "a"));
    cr_expect_null(session_past(f->s, &f->arena, 2, true, &f->err));
    messages = session_messages(f->s, &f->arena, STR("r0"));
    cr_assert(messages);
    cr_expect_eq(messages->n, 2);
    cr_expect_null(session_messages(f->s, &f->arena, STR("r9")));
}

/* Returns the number of the newest call that a request may repeat, or -1. */
static int64_t found(const struct kit *k, uint64_t body, const char *key)
{
    const uint64_t hash[2] = {body, 7};
    uint64_t call;

    return session_find_call(k->s, hash, str_cstr(key), &call) ? (int64_t)call : -1;
}

TEST_WITH(past, a_key_finds_its_own_call_or_one_without, kit)
{
    static const struct {
        const char *key;
        uint64_t body;
    } calls[] = {{"a", 1}, {NULL, 1}, {"b", 1}, {"a", 1}, {"b", 2}, {"", 1}};

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        f->body_hash = calls[i].body;
        f->key = str_cstr(calls[i].key);
        cr_assert_geq(kit_turn(f, "[" U("q") "]", "a"), 0);
    }
    cr_expect_eq(found(f, 1, NULL), 5, "without a key the newest");
    cr_expect_eq(found(f, 1, "a"), 3, "the newest with that key");
    cr_expect_eq(found(f, 1, "b"), 2);
    cr_expect_eq(found(f, 1, ""), 5);
    cr_expect_eq(found(f, 1, "c"), 1, "else the newest without one");
    cr_expect_eq(found(f, 2, "b"), 4);
    cr_expect_eq(found(f, 2, "a"), -1);
    cr_expect_eq(found(f, 3, NULL), -1);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        cr_expect(str_eq(session_call_key(f->s, i), str_cstr(calls[i].key)));
    cr_expect_null(session_call_key(f->s, ARRAY_LEN(calls)).p);
}

/* Calls are stored in the order of their ends. */
TEST_WITH(past, calls_that_end_out_of_order_are_found_by_their_numbers, kit)
{
    static const char *const keys[] = {"zero", "one", "two", "three"};
    static const size_t ends[] = {2, 0, 3, 1};
    struct session_plan *plans[ARRAY_LEN(keys)];

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        f->key = str_cstr(keys[i]);
        plans[i] = kit_ask(f, "[" U("q") "]", NULL);
        cr_assert_not_null(plans[i]);
        cr_assert_eq(plans[i]->call, i);
    }
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        cr_assert_eq(kit_answer(f, plans[ends[i]], "a", false), 0);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        cr_expect(str_eq_c(session_call_key(f->s, i), keys[i]), "%zu", i);
    cr_expect_null(session_call_key(f->s, 4).p);
}

/* Commits one more call with its body, like kit_turn, whose journal is too small for so many. */
static void commit_one(struct kit *k)
{
    static const int32_t ids[] = {'a', 257};
    static const float logprobs[] = {0, 0};
    struct session_answer a = {.ids = {ids, 2},
                               .logprobs = logprobs,
                               .finish_reason = STR("stop"),
                               .message = kit_json(k, "{\"role\":\"assistant\",\"content\":\"a\"}"),
                               .response_id = arena_printf(&k->arena, "r%u", k->answers++)};
    struct session_plan *p = kit_ask(k, "[" U("q") "]", NULL);
    struct buf record = {0};

    cr_assert_not_null(p);
    cr_assert_eq(session_commit_record(p, &a, 1, ++k->now, &record, &k->err), 0);
    cr_assert_eq(session_apply(k->store, buf_str(&record), &k->err), 0);
    buf_done(&record);
}

/* Measures n calls with one body, each with its own key. After each, searches a request with the
 * same body and a different key, and the key of the first call. */
static struct cost look_back(const void *ctx, uint32_t n)
{
    enum { LOOKS = 8 };
    struct cost ret = {0};
    size_t right = 0;
    struct kit k;

    (void)ctx;
    kit_init(&k, NULL);
    for (uint32_t i = 0; i < n; i++) {
        double before;

        k.key = arena_printf(&k.arena, "key %u", i);
        commit_one(&k);
        before = cost_now_s();
        for (int look = 0; look < LOOKS; look++)
            right += found(&k, 0, "another") == -1 && session_call_key(k.s, 0).len == 5;
        ret.seconds += cost_now_s() - before;
    }
    cr_assert_eq(right, (size_t)n * LOOKS);
    kit_done(&k);
    return ret;
}

TEST(past, looking_back_costs_no_more_behind_many_calls)
{
    expect_linear("calls with keys", look_back, NULL, 400);
}

TEST_WITH(reward, the_newest_write_wins_per_key, kit)
{
    static const struct {
        const char *info, *id;
    } writes[] = {
        {"{\"reward\":1,\"acc\":2}", NULL}, {"{\"reward\":0.5}", NULL}, {"{\"reward\":9}", "r0"}};
    struct buf state = {0};

    cr_expect_geq(kit_turn(f, "[" U("q") "]", "a"), 0);
    for (size_t i = 0; i < 3; i++) {
        struct buf record = {0};

        cr_expect_eq(session_reward_record(f->s, kit_json(f, writes[i].info),
                                           str_cstr(writes[i].id), 5, &record, &f->err),
                     0);
        cr_expect_eq(session_apply(f->store, buf_str(&record), &f->err), 0);
        buf_done(&record);
    }
    cr_assert_eq(session_write_state(f->s, false, &state, &f->err), 0);
    cr_expect_neq(str_find(buf_str(&state),
                           STR("\"reward_info\":{\"reward\":0.5,\"acc\":2},\"turn_rewards\":{"
                               "\"r0\":{\"reward\":9}}"),
                           0),
                  SIZE_MAX);
    cr_expect_eq(session_reward_record(f->s, kit_json(f, "{}"), STR("r7"), 5, &state, &f->err), -1);
    cr_expect_str_eq(f->err.param, "response_id");
    cr_expect_eq(
        session_reward_record(f->s, kit_json(f, "[]"), (struct str){0}, 5, &state, &f->err), -1);
    buf_done(&state);
}

/* Applies a record of n members twice: first all are new, then none. */
static struct cost apply_members(const void *ctx, uint32_t n)
{
    struct buf info = {0}, record = {0};
    struct cost cost = {0};
    struct kit k;
    double start;

    (void)ctx;
    kit_init(&k, NULL);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&info, "%s\"member %u\":%u", i ? "," : "{", i, i);
    buf_add(&info, "}", 2); /* and its end */
    cr_assert_eq(
        session_reward_record(k.s, kit_json(&k, info.p), (struct str){0}, 5, &record, &k.err), 0);
    start = cost_now_s();
    for (int i = 0; i < 2; i++)
        cr_assert_eq(session_apply(k.store, buf_str(&record), &k.err), 0);
    cost.seconds = cost_now_s() - start;
    buf_done(&info);
    buf_done(&record);
    kit_done(&k);
    return cost;
}

TEST(reward, many_members_cost_their_number)
{
    expect_linear("members of reward_info", apply_members, NULL, 2000);
}
