/* struct engine_pool with a stand-in engine kind. The tests decide when and how an attempt ends,
 * and check the pool's next request. Time passes only while a call rests or waits. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "testing.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"

enum { ATTEMPTS_MAX = 16, PATIENCE_MS = 5000 };

/* One attempt at a replica, in order of their beginning. */
struct attempt {
    const struct replica *at;
    const struct engine_request *req;
    const struct engine_attempt_events *events;
    void *ctx;
    bool cancelled;
};

struct rig {
    struct loop *loop;
    struct engine_pool *pool;
    struct attempt attempts[ATTEMPTS_MAX];
    size_t n;
};

static struct rig rig;

/* What a call has received; `answer` has the ids as text. */
struct client {
    int deltas, done, failed;
    enum err_kind why;
    struct engine_result result;
    struct engine_version versions[4];
    char answer[64];
};

/* --- the stand-in --- */

static void *on_start(void *replica, const struct engine_request *r,
                      const struct engine_attempt_events *events, void *ctx)
{
    struct attempt *a = &rig.attempts[rig.n++];

    cr_assert_leq(rig.n, ATTEMPTS_MAX);
    *a = (struct attempt){.at = replica, .req = r, .events = events, .ctx = ctx};
    return a;
}

static void on_cancel(void *attempt)
{
    ((struct attempt *)attempt)->cancelled = true;
}

static void on_close(void *replica)
{
    (void)replica;
}

static const struct engine_adapter stand_in = {
    .kind = "stand-in", .start = on_start, .cancel = on_cancel, .close = on_close};

/* --- rig --- */

static void rig_open(const struct engine_options *wanted, size_t n_engines)
{
    static const char *const engines[] = {"vllm:http://127.0.0.1:1", "vllm:http://127.0.0.1:2"};
    struct engine_options o = *wanted;
    struct err e = {0};

    o.engines = engines;
    o.n_engines = n_engines;
    rig = (struct rig){.loop = loop_new(&e)};
    cr_assert_not_null(rig.loop);
    cr_assert_eq(engine_pool_new(rig.loop, &o, &rig.pool, &e), 0, "%s", e.text);
    for (size_t i = 0; i < n_engines; i++) {
        struct replica *r = rig.pool->replicas->at[i];

        r->adapter->close(r->impl);
        r->adapter = &stand_in;
        r->impl = r;
    }
}

static void rig_close(void)
{
    engine_pool_free(rig.pool);
    loop_free(rig.loop);
}

/* Runs the loop until there have been n attempts. */
static void expect_attempts(size_t n)
{
    uint64_t end_ms = clock_ms() + PATIENCE_MS;

    while (rig.n < n && clock_ms() < end_ms)
        (void)loop_poll(rig.loop, 10);
    (void)loop_poll(rig.loop, 0);
    cr_assert_eq(rig.n, n, "%zu attempts, not %zu", rig.n, n);
}

static void expect_end(const int *counter)
{
    uint64_t end_ms = clock_ms() + PATIENCE_MS;

    while (*counter == 0 && clock_ms() < end_ms)
        (void)loop_poll(rig.loop, 10);
    cr_assert_eq(*counter, 1);
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    (void)d;
    ((struct client *)ctx)->deltas++;
}

static void on_done(void *ctx, const struct engine_result *r)
{
    struct client *c = ctx;
    size_t at = 0;

    c->done++;
    c->result = *r;
    for (size_t i = 0; i < r->ids.n; i++)
        at += (size_t)snprintf(c->answer + at, sizeof(c->answer) - at, "%d ", r->ids.at[i]);
    cr_assert_leq(r->n_versions, 4);
    for (size_t i = 0; i < r->n_versions; i++)
        c->versions[i] = r->versions[i];
}

static void on_failed(void *ctx, const struct err *e)
{
    struct client *c = ctx;

    c->failed++;
    c->why = e->kind;
}

static const int32_t prompt[] = {1, 2, 3};

static const struct sampling ten_tokens = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = -1, .max_tokens = 10};

static struct engine_request request(const char *session)
{
    static const struct token_span one = {prompt, 3};

    return (struct engine_request){
        .session_id = str_cstr(session), .prompt = token_parts_of(&one), .sampling = &ten_tokens};
}

static struct engine_call *ask(const struct engine_request *r, struct client *c)
{
    static const struct engine_events events = {
        .delta = on_delta, .done = on_done, .failed = on_failed};

    return engine_start(rig.pool, r, &events, c);
}

static struct engine_call *ask_of(const char *session, struct client *c)
{
    struct engine_request r = request(session);

    return ask(&r, c);
}

/* Ends an attempt with this answer. */
static void answer(size_t attempt, enum engine_finish finish, const int32_t *ids, size_t n)
{
    struct attempt *a = &rig.attempts[attempt];
    struct engine_result r = {
        .finish = finish, .stop_id = -1, .ids = {ids, n}, .cached_tokens = -1};

    cr_assert(attempt < rig.n && !a->cancelled);
    a->events->done(a->ctx, &r);
}

static void fail(size_t attempt, enum engine_failure how)
{
    struct attempt *a = &rig.attempts[attempt];
    struct err e = {0};

    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE, "as the test wants it");
    cr_assert(attempt < rig.n && !a->cancelled);
    a->events->failed(a->ctx, &e, how);
}

static void tell(size_t attempt, const int32_t *ids, size_t n)
{
    struct attempt *a = &rig.attempts[attempt];
    struct engine_delta d = {.ids = {ids, n}};

    a->events->delta(a->ctx, &d);
}

static const int32_t out[] = {7, 8, 9, 10};

/* --- calls --- */

TEST(engine_pool, a_call_begins_in_the_loop_and_ends_once)
{
    struct client c = {0};

    rig_open(&(struct engine_options){0}, 1);
    ask_of("a", &c);
    cr_assert_eq(rig.n, 0, "never from inside");
    cr_assert_eq(engine_pool_inflight(rig.pool), 1);
    expect_attempts(1);
    answer(0, ENGINE_STOP, out, 4);
    cr_assert_eq(c.done, 1);
    cr_assert_str_eq(c.answer, "7 8 9 10 ");
    cr_assert_str_eq(c.result.replica, rig.pool->replicas->at[0]->target.name);
    cr_assert_eq(engine_pool_inflight(rig.pool), 0);
    cr_assert_eq(rig.pool->replicas->at[0]->inflight, 0);
    rig_close();
    cr_assert_eq(c.failed, 0);
}

TEST(engine_pool, who_has_no_place_waits_and_sessions_take_turns)
{
    struct client c[4] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1}, 1);
    ask_of("a", &c[0]);
    ask_of("a", &c[1]);
    ask_of("a", &c[2]);
    ask_of("b", &c[3]);
    expect_attempts(1);
    answer(0, ENGINE_STOP, out, 1);
    expect_attempts(2);
    cr_assert(str_eq_c(rig.attempts[1].req->session_id, "b"), "it need not wait for all of a's");
    answer(1, ENGINE_STOP, out, 1);
    expect_attempts(3);
    answer(2, ENGINE_STOP, out, 1);
    expect_attempts(4);
    answer(3, ENGINE_STOP, out, 1);
    cr_assert(c[0].done == 1 && c[1].done == 1 && c[2].done == 1 && c[3].done == 1);
    rig_close();
}

TEST(engine_pool, a_cancelled_call_gives_its_place_to_the_next)
{
    struct client c[3] = {0};
    struct engine_call *running, *waiting;

    rig_open(&(struct engine_options){.max_inflight = 1}, 1);
    running = ask_of("a", &c[0]);
    waiting = ask_of("b", &c[1]);
    ask_of("c", &c[2]);
    expect_attempts(1);
    engine_cancel(waiting);
    engine_cancel(running);
    engine_cancel(NULL);
    cr_assert(rig.attempts[0].cancelled, "the engine hears of it");
    expect_attempts(2);
    cr_assert(str_eq_c(rig.attempts[1].req->session_id, "c"));
    answer(1, ENGINE_STOP, out, 1);
    rig_close();
    cr_assert(c[0].done + c[0].failed + c[1].done + c[1].failed == 0, "no event after cancel");
}

TEST(engine_pool, all_calls_end_with_the_pool)
{
    struct client c[2] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1}, 1);
    ask_of("a", &c[0]);
    ask_of("b", &c[1]);
    expect_attempts(1);
    rig_close();
    cr_assert(rig.attempts[0].cancelled);
    cr_assert(c[0].failed == 1 && c[0].why == ERR_DRAINING);
    cr_assert(c[1].failed == 1 && c[1].why == ERR_DRAINING);
}

/* --- limits --- */

TEST(engine_pool, a_full_queue_refuses_from_the_loop)
{
    struct client c[3] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1, .max_queue = 1}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    ask_of("a", &c[1]);
    ask_of("a", &c[2]);
    cr_assert_eq(c[2].failed, 0, "never from inside");
    expect_end(&c[2].failed);
    cr_assert_eq(c[2].why, ERR_OVERLOADED);
    answer(0, ENGINE_STOP, out, 1);
    expect_attempts(2);
    rig_close();
}

TEST(engine_pool, a_full_queue_makes_room_for_a_session_with_less)
{
    struct client c[4] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1, .max_queue = 2}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    ask_of("a", &c[1]);
    ask_of("a", &c[2]);
    ask_of("b", &c[3]);
    expect_end(&c[2].failed);
    cr_assert_eq(c[2].why, ERR_OVERLOADED, "the newest of the session that has more");
    cr_assert(c[1].failed == 0 && c[3].failed == 0);
    rig_close();
}

TEST(engine_pool, one_session_may_wait_with_so_many_calls_only)
{
    struct client c[3] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1, .max_session_queue = 1}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    ask_of("a", &c[1]);
    ask_of("a", &c[2]);
    expect_end(&c[2].failed);
    cr_assert_eq(c[2].why, ERR_OVERLOADED);
    cr_assert_eq(c[1].failed, 0);
    rig_close();
}

TEST(engine_pool, nobody_waits_longer_than_the_queue_timeout)
{
    struct client c[2] = {0};

    rig_open(&(struct engine_options){.max_inflight = 1, .queue_timeout_ms = 20}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    ask_of("b", &c[1]);
    expect_end(&c[1].failed);
    cr_assert_eq(c[1].why, ERR_OVERLOADED);
    cr_assert_eq(c[0].failed, 0, "one that runs has its own time");
    rig_close();
}

/* --- failures --- */

TEST(engine_pool, what_no_engine_answered_goes_to_another_one)
{
    struct client c = {0};

    rig_open(&(struct engine_options){.retries = 1}, 2);
    ask_of("a", &c);
    expect_attempts(1);
    fail(0, ENGINE_NO_ANSWER);
    cr_assert_eq(c.failed, 0);
    expect_attempts(2);
    cr_assert_neq(rig.attempts[0].at, rig.attempts[1].at);
    cr_assert_eq(rig.attempts[1].req->attempt, 1);
    answer(1, ENGINE_STOP, out, 2);
    cr_assert_eq(c.done, 1);
    cr_assert_eq(c.result.retries, 1);
    rig_close();
}

TEST(engine_pool, tries_are_counted)
{
    struct client c = {0};

    rig_open(&(struct engine_options){.retries = 1}, 1);
    ask_of("a", &c);
    expect_attempts(1);
    fail(0, ENGINE_NO_ANSWER);
    expect_attempts(2);
    fail(1, ENGINE_NO_ANSWER);
    cr_assert_eq(c.failed, 1);
    cr_assert_eq(c.why, ERR_ENGINE_UNAVAILABLE);
    rig_close();
}

TEST(engine_pool, what_broke_is_not_asked_again)
{
    struct client c = {0};

    rig_open(&(struct engine_options){.retries = 5, .retry_5xx = true}, 1);
    ask_of("a", &c);
    expect_attempts(1);
    fail(0, ENGINE_BROKE);
    cr_assert_eq(c.failed, 1);
    rig_close();
}

TEST(engine_pool, a_5xx_is_repeated_where_the_settings_say_so_and_nothing_was_told)
{
    struct client c[3] = {0};
    struct engine_request r = request("a");

    rig_open(&(struct engine_options){.retries = 5}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    fail(0, ENGINE_SAID_5XX);
    cr_assert_eq(c[0].failed, 1, "not by default");
    rig_close();

    rig_open(&(struct engine_options){.retries = 5, .retry_5xx = true}, 1);
    ask_of("a", &c[1]);
    expect_attempts(1);
    fail(0, ENGINE_SAID_5XX);
    expect_attempts(2);
    answer(1, ENGINE_STOP, out, 1);
    cr_assert_eq(c[1].done, 1);
    r.stream = true;
    ask(&r, &c[2]);
    expect_attempts(3);
    tell(2, out, 1);
    fail(2, ENGINE_SAID_5XX);
    cr_assert(c[2].deltas == 1 && c[2].failed == 1, "the client has heard of it");
    rig_close();
}

TEST(engine_pool, a_full_replica_gives_way_to_each_other_one_once)
{
    struct client c[2] = {0};

    rig_open(&(struct engine_options){.retries = 0}, 2);
    ask_of("a", &c[0]);
    for (size_t i = 0; i < 2; i++) {
        expect_attempts(i + 1);
        fail(i, ENGINE_FULL);
    }
    cr_assert_eq(c[0].failed, 1, "both are full");
    ask_of("a", &c[1]);
    expect_attempts(3);
    answer(2, ENGINE_STOP, out, 1);
    cr_assert_eq(c[1].done, 1, "one of them is asked all the same");
    rig_close();
}

TEST(engine_pool, an_engine_may_want_to_be_asked_differently_but_not_forever)
{
    struct client c = {0};

    rig_open(&(struct engine_options){0}, 1);
    ask_of("a", &c);
    for (size_t i = 0; i < 4; i++) {
        expect_attempts(i + 1);
        cr_assert_eq(c.failed, 0);
        fail(i, ENGINE_ASK_ANEW);
    }
    cr_assert_eq(c.failed, 1);
    rig_close();
}

TEST(engine_pool, ids_outside_of_the_vocabulary_are_refused)
{
    struct client c = {0};

    rig_open(&(struct engine_options){.vocab_size = 10}, 1);
    ask_of("a", &c);
    expect_attempts(1);
    answer(0, ENGINE_STOP, out, 4);
    cr_assert(c.failed == 1 && c.done == 0);
    cr_assert_eq(c.why, ERR_ENGINE_INVALID);
    rig_close();
}

/* --- engines that give up part way --- */

TEST(engine_pool, an_aborted_answer_is_gone_on_with)
{
    static const int32_t with_piece[] = {1, 2, 3, 7, 8};
    struct client c = {0};
    const struct engine_request *again;

    rig_open(&(struct engine_options){.resume_aborts = true}, 1);
    ask_of("a", &c);
    expect_attempts(1);
    answer(0, ENGINE_ABORTED, out, 2);
    expect_attempts(2);
    again = rig.attempts[1].req;
    cr_assert_eq(again->prompt.n, 5);
    cr_assert_eq(again->prompt.n_parts, 1);
    cr_assert_eq(memcmp(again->prompt.parts[0].at, with_piece, sizeof(with_piece)), 0);
    cr_assert_eq(again->sampling->max_tokens, 8);
    answer(1, ENGINE_STOP, out + 2, 2);
    cr_assert_str_eq(c.answer, "7 8 9 10 ");
    cr_assert_eq(c.result.resumes, 1);
    rig_close();
}

TEST(engine_pool, an_aborted_answer_is_a_failure_where_the_settings_say_so)
{
    struct client c = {0};

    rig_open(&(struct engine_options){0}, 1);
    ask_of("a", &c);
    expect_attempts(1);
    answer(0, ENGINE_ABORTED, out, 2);
    cr_assert_eq(c.failed, 1);
    rig_close();
}

TEST(engine_pool, under_a_grammar_the_answer_starts_over)
{
    struct json grammar = {.kind = JSON_OBJECT};
    struct sampling held = ten_tokens;
    struct engine_request r = request("a");
    struct client c[2] = {0};

    rig_open(&(struct engine_options){.resume_aborts = true}, 1);
    held.grammar = &grammar;
    r.sampling = &held;
    ask(&r, &c[0]);
    expect_attempts(1);
    answer(0, ENGINE_ABORTED, out, 2);
    expect_attempts(2);
    cr_assert_eq(rig.attempts[1].req->prompt.n, 3, "from the beginning");
    answer(1, ENGINE_STOP, out, 4);
    cr_assert_str_eq(c[0].answer, "7 8 9 10 ");
    r.stream = true;
    ask(&r, &c[1]);
    expect_attempts(3);
    answer(2, ENGINE_ABORTED, out, 2);
    cr_assert_eq(c[1].failed, 1, "what was told cannot be taken back");
    rig_close();
}

/* --- pauses and weights --- */

static void on_drained(void *ctx)
{
    ++*(int *)ctx;
}

TEST(engine_pool, a_pause_holds_new_calls_and_tells_when_the_last_has_ended)
{
    struct client c[2] = {0};
    uint64_t until_ms;
    int drained = 0;

    rig_open(&(struct engine_options){.queue_timeout_ms = 200}, 1);
    ask_of("a", &c[0]);
    expect_attempts(1);
    engine_pool_pause(rig.pool, ENGINE_DRAIN, on_drained, &drained);
    ask_of("b", &c[1]);
    until_ms = clock_ms() + 300; /* longer than its time in the queue, which is stopped now */
    while (clock_ms() < until_ms)
        (void)loop_poll(rig.loop, 20);
    cr_assert(rig.n == 1 && drained == 0 && c[1].failed == 0);
    answer(0, ENGINE_STOP, out, 1);
    cr_assert_eq(drained, 1);
    engine_pool_pause(rig.pool, ENGINE_RUN, NULL, NULL);
    expect_attempts(2);
    rig_close();
}

TEST(engine_pool, tokens_have_the_version_that_held_when_they_came)
{
    struct engine_request r = request("a");
    struct client c = {0};

    r.stream = true;
    rig_open(&(struct engine_options){0}, 1);
    engine_pool_set_version(rig.pool, STR("one"));
    ask(&r, &c);
    expect_attempts(1);
    tell(0, out, 2);
    engine_pool_set_version(rig.pool, STR("two"));
    tell(0, out + 2, 2);
    answer(0, ENGINE_STOP, out, 4);
    cr_assert_eq(c.result.n_versions, 2);
    cr_assert(c.versions[0].start == 0 && c.versions[0].end == 2);
    cr_assert(c.versions[1].start == 2 && c.versions[1].end == 4);
    rig_close();
}
