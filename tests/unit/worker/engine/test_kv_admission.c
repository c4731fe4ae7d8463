/* New sessions wait for space in a KV cache. Two pools, like those of two workers, share a board
 * and one stand-in engine, which answers when the test says so. */
#include <string.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/proc/board.h"
#include "testing.h"
#include "worker/engine/kv/kv_admission.h"
#include "worker/engine/kv/kv_admission_internal.h"
#include "worker/engine/kv/kv_room.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/text/tokens/span.h"

enum { POOLS = 2, RUNS_MAX = 32, LONG_MS = 3600000, WAIT_MS = 20000 };

/* A running call of the stand-in. */
struct running {
    struct str session;
    const struct engine_attempt_events *events;
    void *ctx;
    bool over;
};

struct node {
    struct loop *loop;
    struct board *board;
    struct engine_pool *pools[POOLS];
    struct running runs[RUNS_MAX];
    size_t n;
    struct engine_kv kv;
};

static struct node node;

struct asker {
    int done, failed;
    struct err why;
};

static void *stand_start(void *replica, const struct engine_request *q,
                         const struct engine_attempt_events *events, void *ctx)
{
    struct running *r = &node.runs[node.n++];

    (void)replica;
    cr_assert_leq(node.n, RUNS_MAX);
    *r = (struct running){.session = q->session_id, .events = events, .ctx = ctx};
    return r;
}

static void stand_cancel(void *attempt)
{
    ((struct running *)attempt)->over = true;
}

static void stand_close(void *replica)
{
    (void)replica;
}

static void stand_kv(void *replica, void (*told)(void *ctx, const struct engine_kv *kv), void *ctx)
{
    (void)replica;
    told(ctx, &node.kv);
}

static const struct engine_adapter standing = {.kind = "stand-in",
                                               .start = stand_start,
                                               .cancel = stand_cancel,
                                               .close = stand_close,
                                               .look_at_kv = stand_kv};

/* Accepts requests unchanged. */
static const struct engine_adapter passing = {.kind = "passing stand-in",
                                              .start = stand_start,
                                              .cancel = stand_cancel,
                                              .close = stand_close,
                                              .look_at_kv = stand_kv,
                                              .passes_request = true};

static void stand_in(struct replica *r, const struct engine_adapter *kind)
{
    r->adapter->close(r->impl);
    r->adapter = kind;
    r->impl = r;
    kv_look(r);
}

static void open_node(const struct engine_options *wanted, uint64_t capacity)
{
    static const char *const engines[] = {"vllm:http://127.0.0.1:1", "vllm:http://127.0.0.1:2"};
    struct engine_options o = *wanted;
    struct err e = {0};

    node = (struct node){.loop = loop_new(&e), .board = board_new(), .kv = {.capacity = capacity}};
    o.engines = engines;
    o.n_engines = MAX_OF(wanted->n_engines, (size_t)1);
    o.kv_admission = 100;
    o.board = node.board;
    o.kv_lease_idle_ms = o.kv_lease_idle_ms ? o.kv_lease_idle_ms : LONG_MS;
    o.kv_hold_ms = o.kv_hold_ms ? o.kv_hold_ms : LONG_MS;
    for (unsigned i = 0; i < POOLS; i++) {
        o.slot = BOARD_WORKER0 + i;
        cr_assert_eq(engine_pool_new(node.loop, &o, &node.pools[i], &e), 0, "%s", e.text);
        for (size_t j = 0; j < o.n_engines; j++)
            stand_in(node.pools[i]->replicas->at[j], j == 0 ? &standing : &passing);
    }
}

static void close_node(void)
{
    for (size_t i = 0; i < POOLS; i++)
        engine_pool_free(node.pools[i]);
    cr_expect_eq(board_kv_leased(node.board, 0), 0, "all is given back");
    loop_free(node.loop);
    board_free(node.board);
}

static void told_done(void *ctx, const struct engine_result *r)
{
    (void)r;
    ((struct asker *)ctx)->done++;
}

static void told_failed(void *ctx, const struct err *e)
{
    ((struct asker *)ctx)->failed++;
    ((struct asker *)ctx)->why = *e;
}

static const int32_t long_prompt[64] = {1};

static struct engine_call *ask(size_t pool, struct engine_request q, struct asker *a)
{
    static const struct engine_events events = {.done = told_done, .failed = told_failed};
    static const struct sampling sampling = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = -1, .max_tokens = 10};
    static const struct token_span ten = {long_prompt, 10};

    q.prompt = token_parts_of(&ten);
    q.sampling = &sampling;
    return engine_start(node.pools[pool], &q, &events, a);
}

/* Begins a call of a session whose earlier calls were answered. */
static struct engine_call *begin(size_t pool, const char *session, uint64_t call, struct asker *a)
{
    return ask(
        pool,
        (struct engine_request){.session_id = str_cstr(session), .call = call, .ran = call > 0}, a);
}

/* Runs the loop until n calls have begun. Then runs it further, and checks that no other call
 * begins. */
static void expect_runs(size_t n)
{
    uint64_t end_ms = clock_ms() + WAIT_MS;

    while (node.n < n && clock_ms() < end_ms)
        (void)loop_poll(node.loop, 10);
    for (int i = 0; i < 5; i++)
        (void)loop_poll(node.loop, 10);
    cr_assert_eq(node.n, n, "%zu calls run, not %zu", node.n, n);
}

static void finish(size_t run, size_t n_ids)
{
    struct running *a = &node.runs[run];
    struct engine_result r = {
        .finish = ENGINE_STOP, .stop_id = -1, .ids = {long_prompt, n_ids}, .cached_tokens = -1};

    cr_assert(run < node.n && !a->over);
    a->over = true;
    a->events->done(a->ctx, &r);
}

static void await(const int *counter)
{
    uint64_t end_ms = clock_ms() + WAIT_MS;

    while (*counter == 0 && clock_ms() < end_ms)
        (void)loop_poll(node.loop, 10);
    cr_assert_eq(*counter, 1);
}

/* Advances the time. */
static void other_time(void)
{
    uint64_t now = clock_us();

    while (clock_us() == now)
        (void)loop_poll(node.loop, 0);
}

TEST(admission, the_oldest_of_all_workers_comes_first)
{
    struct asker a = {0}, b = {0}, c = {0}, d = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(1, "b", 0, &b);
    other_time();
    begin(0, "c", 0, &c);
    begin(0, "a", 1, &d);
    expect_runs(2);
    cr_assert(str_eq_c(node.runs[1].session, "a"), "who runs does not wait");
    cr_assert_eq(board_kv_held(node.board), 2);
    finish(0, 5);
    finish(1, 5);
    expect_runs(2);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(3);
    cr_assert(str_eq_c(node.runs[2].session, "b"));
    finish(2, 5);
    engine_pool_end_session(node.pools[1], STR("b"));
    expect_runs(4);
    cr_assert(str_eq_c(node.runs[3].session, "c"));
    finish(3, 5);
    close_node();
    cr_assert(a.done == 1 && b.done == 1 && c.done == 1 && d.done == 1);
}

TEST(admission, one_that_waited_is_refused_with_its_place_and_keeps_it)
{
    struct asker a = {0}, b = {0}, c = {0}, again = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60, .kv_hold_ms = 50}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(0, "b", 0, &b);
    await(&b.failed);
    cr_assert_eq(b.why.kind, ERR_OVERLOADED);
    cr_assert_not_null(strstr(b.why.text, "place 1 of 1 "), "%s", b.why.text);
    node.pools[0]->opt.kv_hold_ms = LONG_MS;
    begin(0, "c", 0, &c);
    begin(0, "b", 0, &again);
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(2);
    cr_assert(str_eq_c(node.runs[1].session, "b"), "it came before c");
    finish(1, 1);
    close_node();
    cr_assert(again.done == 1 && c.failed == 1 && c.why.kind == ERR_DRAINING);
}

/* Runs the loop, which notifies held calls. */
static void let_pass(void)
{
    for (int i = 0; i < 5; i++)
        (void)loop_poll(node.loop, 10);
}

TEST(admission, a_session_has_no_more_held_calls_than_may_wait)
{
    struct asker a = {0}, b[5] = {{0}}, c = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60, .max_session_queue = 3}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    for (size_t i = 0; i < ARRAY_LEN(b); i++)
        begin(0, "b", 0, &b[i]);
    begin(0, "c", 0, &c);
    let_pass();
    for (size_t i = 0; i < ARRAY_LEN(b); i++) {
        cr_assert_eq(b[i].failed, i >= 3, "%zu", i);
        if (i >= 3)
            cr_expect_not_null(strstr(b[i].why.text, "--max-session-queue"), "%s", b[i].why.text);
    }
    cr_expect_eq(c.failed, 0, "another session's");
    cr_expect_eq(board_kv_held(node.board), 2);
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(4);
    for (size_t i = 1; i < 4; i++) {
        cr_assert(str_eq_c(node.runs[i].session, "b"));
        finish(i, 1);
    }
    close_node();
    cr_expect(b[0].done == 1 && b[1].done == 1 && b[2].done == 1);
}

/* b has all slots, and gives them one by one to sessions without a slot. Sessions that had a share
 * keep it. */
static void others_come(bool paused)
{
    static const char *const others[] = {"c", "d", "e"};
    struct asker a = {0}, b[4] = {{0}}, other[3] = {{0}}, more = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60, .max_queue = 4}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    for (size_t i = 0; i < ARRAY_LEN(b); i++)
        begin(0, "b", 0, &b[i]);
    if (paused)
        engine_pool_pause(node.pools[0], ENGINE_HOLD, NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        begin(0, others[i], 0, &other[i]);
        let_pass();
        cr_expect_eq(b[3 - i].failed, 1, "the newest of b makes room for %s", others[i]);
        cr_expect_eq(b[2 - i].failed, 0);
        cr_expect_eq(b[3 - i].why.kind, ERR_OVERLOADED);
    }
    begin(0, "f", 0, &more);
    let_pass();
    cr_expect_eq(more.failed, 1, "there are more sessions than places");
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        cr_expect_eq(other[i].failed, 0, "%zu", i);
    cr_expect_eq(b[0].failed, 0);
    finish(0, 1);
    close_node();
}

TEST(admission, who_has_most_makes_room_for_others)
{
    others_come(false);
}

TEST(admission, who_has_most_makes_room_for_others_in_a_pause_too)
{
    others_come(true);
}

TEST(admission, a_lease_grows_with_its_session_and_the_next_ones_are_expected_to)
{
    struct asker a = {0}, b = {0};

    open_node(&(struct engine_options){0}, 1600);
    begin(0, "a", 0, &a);
    expect_runs(1);
    cr_assert_eq(board_kv_leased(node.board, 0), 20, "its prompt and the answer that it may have");
    finish(0, 40);
    cr_assert_eq(board_kv_leased(node.board, 0), 50);
    engine_pool_end_session(node.pools[0], STR("a"));
    cr_assert_eq(board_kv_leased(node.board, 0), 0);
    begin(0, "b", 0, &b);
    expect_runs(2);
    cr_assert_eq(board_kv_leased(node.board, 0), 50);
    finish(1, 1);
    close_node();
}

TEST(admission, what_is_larger_than_every_cache_is_refused)
{
    struct asker a = {0}, ran = {0};

    open_node(&(struct engine_options){0}, 10);
    begin(0, "a", 0, &a);
    await(&a.failed);
    cr_assert_eq(a.why.kind, ERR_CONTEXT_LENGTH);
    cr_assert_not_null(strstr(a.why.text, "has 10 tokens"), "%s", a.why.text);
    begin(0, "b", 3, &ran); /* the engine's own report */
    expect_runs(1);
    finish(0, 1);
    close_node();
}

/* Other calls must not delay the check of the held ones. */
TEST(admission, other_calls_do_not_put_off_the_look_at_the_held)
{
    struct asker a = {0}, b = {0}, c = {0};
    uint64_t at_ms, came_ms;

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(0, "b", 0, &b);
    at_ms = node.pools[0]->admission->tick_ms;
    came_ms = clock_ms();
    cr_assert_gt(at_ms, 0);
    while (clock_ms() < came_ms + 2)
        ;
    engine_cancel(begin(0, "c", 0, &c));
    begin(0, "c", 0, &c);
    cr_assert_eq(node.pools[0]->admission->tick_ms, at_ms);
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(2);
    finish(1, 1);
    close_node();
}

TEST(admission, a_cancelled_call_leaves_nothing)
{
    struct asker a = {0}, b = {0}, c = {0};
    struct engine_call *held;

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    held = begin(0, "b", 0, &b);
    begin(0, "c", 0, &c);
    cr_assert_eq(node.pools[0]->admission->n_sessions, 2);
    engine_cancel(held);
    cr_assert_eq(node.pools[0]->admission->n_sessions, 1);
    engine_pool_end_session(node.pools[0], STR("b"));
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(2);
    cr_assert(str_eq_c(node.runs[1].session, "c"));
    finish(1, 1);
    close_node();
    cr_assert_eq(b.done + b.failed, 0);
}

TEST(admission, an_idle_session_gives_its_room_back_and_comes_back_at_once)
{
    struct asker a = {0}, b = {0}, back = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60, .kv_lease_idle_ms = 30}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(0, "b", 0, &b);
    expect_runs(1); /* a runs for any time */
    finish(0, 1);
    expect_runs(2);
    begin(0, "a", 1, &back);
    expect_runs(3);
    cr_assert_eq(board_kv_leased(node.board, 0), 120, "more than there should be, and true");
    finish(1, 1);
    finish(2, 1);
    close_node();
}

TEST(admission, where_an_engine_tells_nothing_nobody_waits)
{
    struct asker a[4] = {0};
    char name[] = "s0";

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 0);
    cr_assert(board_kv_untold(node.board));
    for (size_t i = 0; i < 4; i++, name[1]++)
        begin(i % POOLS, name, 0, &a[i]);
    expect_runs(4);
    node.kv.capacity = 100; /* the engine was restarted, and reports */
    kv_look(node.pools[0]->replicas->at[0]);
    kv_look(node.pools[1]->replicas->at[0]);
    cr_assert(!board_kv_untold(node.board));
    for (size_t i = 0; i < 4; i++)
        finish(i, 1);
    close_node();
}

/* The session's first calls failed, and its ticket is gone. The number of the call does not matter.
 */
TEST(admission, a_session_without_an_answer_is_new_whatever_its_call)
{
    struct asker a = {0}, b = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    ask(0, (struct engine_request){.session_id = STR("b"), .call = 1}, &b);
    expect_runs(1);
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(2);
    finish(1, 1);
    close_node();
    cr_assert(a.done == 1 && b.done == 1);
}

TEST(admission, who_wants_a_whole_cache_has_it_alone_whatever_others_use)
{
    struct asker a = {0}, b = {0}, c = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 150}, 100);
    node.kv.used = 30;
    kv_look(node.pools[0]->replicas->at[0]);
    cr_assert_eq(node.pools[0]->replicas->at[0]->kv.others, 30);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(0, "b", 0, &b);
    expect_runs(1);
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("a"));
    expect_runs(2);
    finish(1, 1);
    engine_pool_end_session(node.pools[0], STR("b"));
    node.pools[0]->opt.kv_session_tokens = 80;
    begin(0, "c", 0, &c);
    expect_runs(2);
    close_node();
    cr_assert(a.done == 1 && b.done == 1 && c.failed == 1);
}

/* The only engine for the oldest session is down, which is no lack of space. */
TEST(admission, nobody_stands_behind_who_waits_for_an_engine_that_is_down)
{
    static const struct json body = {0};
    struct asker a = {0}, b = {0}, c = {0}, late = {0};
    struct engine_request text = {.session_id = STR("a"), .text = true, .chat_body = &body};
    struct replica *down;

    open_node(&(struct engine_options){.kv_session_tokens = 60, .n_engines = 2}, 100);
    down = node.pools[0]->replicas->at[1];
    down->up = false;
    ask(0, text, &a);
    other_time();
    begin(0, "b", 0, &b);
    expect_runs(1);
    cr_assert(str_eq_c(node.runs[0].session, "b"));
    finish(0, 1);
    engine_pool_end_session(node.pools[0], STR("b"));
    begin(1, "c", 0, &c);
    expect_runs(2);
    finish(1, 1);
    node.pools[0]->opt.kv_hold_ms = 1;
    text.session_id = STR("late");
    ask(0, text, &late);
    await(&late.failed);
    cr_assert_eq(late.why.kind, ERR_ENGINE_UNAVAILABLE, "%s", late.why.text);
    down->up = true;
    expect_runs(3);
    cr_assert(str_eq_c(node.runs[2].session, "a"));
    finish(2, 1);
    close_node();
    cr_assert(a.done == 1 && b.done == 1 && c.done == 1);
}

TEST(admission, room_that_no_call_came_to_use_is_given_back)
{
    struct asker a = {0}, b = {0};
    struct engine_call *admitted;

    open_node(&(struct engine_options){.kv_session_tokens = 60, .kv_lease_idle_ms = 1}, 100);
    admitted = begin(0, "a", 0, &a); /* the loop has not run: the call is in the queue */
    cr_assert_eq(board_kv_leased(node.board, 0), 60);
    leases_sweep(&node.pools[0]->admission->leases, UINT64_MAX);
    cr_assert_eq(board_kv_leased(node.board, 0), 60, "a call waits with it");
    engine_cancel(admitted);
    cr_assert_eq(board_kv_leased(node.board, 0), 0);
    begin(0, "b", 0, &b);
    expect_runs(1);
    finish(0, 1);
    close_node();
}

TEST(admission, a_complete_session_gives_its_room_back)
{
    struct asker a = {0}, b = {0}, back = {0};

    open_node(&(struct engine_options){.kv_session_tokens = 60}, 100);
    begin(0, "a", 0, &a);
    expect_runs(1);
    begin(0, "b", 0, &b);
    engine_pool_complete_session(node.pools[0], STR("a"));
    expect_runs(1); /* it still runs */
    finish(0, 1);
    expect_runs(2);
    cr_assert(str_eq_c(node.runs[1].session, "b"));
    begin(0, "a", 1, &back);
    expect_runs(3);
    cr_assert_eq(board_kv_leased(node.board, 0), 120);
    finish(2, 1);
    engine_pool_complete_session(node.pools[0], STR("a"));
    cr_assert_eq(board_kv_leased(node.board, 0), 60);
    finish(1, 1);
    close_node();
}

static void begin_several(struct engine_request q, uint32_t n, struct asker *a)
{
    for (q.answer = 0, q.answers = n; q.answer < n; q.answer++)
        ask(0, q, a);
}

/* 10 tokens of prompt, and at most 10 for each answer. */
TEST(admission, a_lease_counts_all_answers_of_a_call)
{
    struct asker a = {0}, b = {0};

    open_node(&(struct engine_options){0}, 1600);
    begin_several((struct engine_request){.session_id = STR("a")}, 3, &a);
    expect_runs(3);
    cr_assert_eq(board_kv_leased(node.board, 0), 40);
    for (size_t i = 0; i < 3; i++)
        finish(i, 20);
    cr_assert_eq(board_kv_leased(node.board, 0), 70);
    begin_several((struct engine_request){.session_id = STR("a"), .call = 1, .ran = true}, 2, &b);
    expect_runs(5);
    finish(3, 20);
    finish(4, 20);
    cr_assert_eq(board_kv_leased(node.board, 0), 70, "the first call's are not counted again");
    close_node();
    cr_assert(a.done == 3 && b.done == 2);
}

TEST(admission, answers_of_one_call_take_a_slot_each_while_they_run)
{
    struct asker a = {0}, b = {0}, again = {0};

    open_node(&(struct engine_options){0}, 300);
    node.kv.unit = 100;
    kv_look(node.pools[0]->replicas->at[0]);
    begin_several((struct engine_request){.session_id = STR("a")}, 2, &a);
    expect_runs(2);
    cr_assert_eq(board_kv_leased(node.board, 0), 200);
    begin_several((struct engine_request){.session_id = STR("b")}, 2, &b);
    expect_runs(2);
    finish(0, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 200, "the other one runs");
    finish(1, 1);
    expect_runs(4);
    cr_assert_eq(board_kv_leased(node.board, 0), 300, "one of a, two of b");
    begin_several((struct engine_request){.session_id = STR("a"), .call = 1, .ran = true}, 3,
                  &again);
    expect_runs(7);
    cr_assert_eq(board_kv_leased(node.board, 0), 500, "who runs does not wait");
    for (size_t i = 2; i < 7; i++)
        finish(i, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 200);
    close_node();
    cr_assert(a.done == 2 && b.done == 2 && again.done == 3);
}

TEST(admission, calls_that_run_at_once_take_all_of_their_slots)
{
    struct asker a = {0}, b = {0}, c = {0};

    open_node(&(struct engine_options){0}, 1600);
    node.kv.unit = 100;
    kv_look(node.pools[0]->replicas->at[0]);
    begin_several((struct engine_request){.session_id = STR("a")}, 2, &a);
    expect_runs(2);
    begin_several((struct engine_request){.session_id = STR("a"), .call = 1, .ran = true}, 3, &b);
    expect_runs(5);
    cr_assert_eq(board_kv_leased(node.board, 0), 500, "the session's, one and three more");
    for (size_t i = 2; i < 5; i++)
        finish(i, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 200, "the second call has given its back");
    begin_several((struct engine_request){.session_id = STR("a"), .call = 2, .ran = true}, 2, &c);
    expect_runs(7);
    cr_assert_eq(board_kv_leased(node.board, 0), 400);
    for (size_t i = 0; i < 7; i++)
        if (i < 2 || i > 4)
            finish(i, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 100);
    close_node();
    cr_assert(a.done == 2 && b.done == 3 && c.done == 2);
}

/* Such as calls of an agent and its sub-agents, which share a session. */
TEST(admission, calls_of_one_answer_that_run_at_once_take_a_slot_each)
{
    struct asker a[5] = {0};

    open_node(&(struct engine_options){0}, 1600);
    node.kv.unit = 100;
    kv_look(node.pools[0]->replicas->at[0]);
    (void)begin(0, "a", 0, &a[0]);
    expect_runs(1);
    cr_assert_eq(board_kv_leased(node.board, 0), 100);
    (void)begin(0, "a", 1, &a[1]);
    (void)begin(0, "a", 2, &a[2]);
    expect_runs(3);
    cr_assert_eq(board_kv_leased(node.board, 0), 300);
    finish(0, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 300, "the session keeps its own");
    (void)begin(0, "a", 3, &a[3]);
    expect_runs(4);
    cr_assert_eq(board_kv_leased(node.board, 0), 300, "which the next one takes");
    finish(1, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 200);
    finish(3, 1);
    finish(2, 1);
    cr_assert_eq(board_kv_leased(node.board, 0), 100);
    (void)begin(0, "a", 4, &a[4]);
    expect_runs(5);
    cr_assert_eq(board_kv_leased(node.board, 0), 100);
    finish(4, 1);
    close_node();
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(a[i].done, 1);
}
