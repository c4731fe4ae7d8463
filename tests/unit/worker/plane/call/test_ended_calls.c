/* A session ends while many of its calls run. A few of them fail in each loop iteration, and none
 * of them continues meanwhile. */
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/call_waits.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"

#define ENDED STR("ended")
#define OTHER STR("other")

enum { RUNNING = 2, STEP = 2 /* objects that end in an iteration if each pause yields */ };

static struct fixture {
    struct call_env env;
    struct ledger ledger;
    struct residency residency;
    struct places places;
    struct chat_request request;
    unsigned failed[ERR_KIND_COUNT]; /* number of failed clients, by reason */
    unsigned begun, begun_of_ended;  /* attempts at the engine */

    struct {
        const struct engine_attempt_events *events;
        void *ctx;
    } attempts[RUNNING]; /* the first attempts */

    unsigned ends; /* ends of sessions that the engine was notified of */
} fx;

/* --- the engine --- */

static void *on_start(void *replica, const struct engine_request *r,
                      const struct engine_attempt_events *events, void *ctx)
{
    if (fx.begun < RUNNING) {
        fx.attempts[fx.begun].events = events;
        fx.attempts[fx.begun].ctx = ctx;
    }
    fx.begun++;
    fx.begun_of_ended += str_eq(r->session_id, ENDED);
    return replica;
}

static void on_cancel(void *attempt)
{
    (void)attempt;
}

static void on_end(void *replica, struct str session_id)
{
    (void)replica;
    (void)session_id;
    fx.ends++;
}

static void on_close(void *replica)
{
    (void)replica;
}

static const struct engine_adapter stand_in = {.kind = "stand-in",
                                               .start = on_start,
                                               .cancel = on_cancel,
                                               .close = on_close,
                                               .end_session = on_end};

/* --- clients --- */

static void on_failed(void *ctx, const struct err *e)
{
    (void)ctx;
    fx.failed[e->kind]++;
}

static const struct answer_sink sink = {.failed = on_failed};

static unsigned told(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < ERR_KIND_COUNT; i++)
        n += fx.failed[i];
    return n;
}

/* --- calls --- */

static void open_env(void)
{
    static const char *const engines[] = {"vllm:http://127.0.0.1:1"};
    static const struct session_defaults defaults = {.history = "tree",
                                                     .message_matcher = "canonical"};
    struct engine_options o = {.engines = engines, .n_engines = 1, .max_inflight = RUNNING};
    struct call_env *env = &fx.env;
    struct replica *r;
    struct err e = {0};

    fx = (struct fixture){0};
    env->loop = loop_new(&e);
    env->tasks = tasks_new(env->loop);
    tasks_yield_always(env->tasks, true);
    env->ledger = &fx.ledger;
    env->ledger->residency = env->residency = &fx.residency;
    env->residency->places = &fx.places;
    env->store = session_store_new(NULL, &defaults);
    cr_assert_eq(engine_pool_new(env->loop, &o, &env->engines, &e), 0, "%s", e.text);
    r = env->engines->replicas->at[0];
    r->adapter->close(r->impl);
    r->adapter = &stand_in;
    r->impl = r;
}

static void close_env(void)
{
    struct call_env *env = &fx.env;

    cr_expect_eq(env->n_running, 0);
    cr_expect_eq(env->n_leaving, 0);
    cr_expect_eq(engine_pool_inflight(env->engines), 0);
    tasks_finish(env->tasks, true);
    cr_expect_eq(tasks_count(env->tasks), 0);
    tasks_free(env->tasks);
    call_rows_free(env);
    session_store_free(env->store);
    engine_pool_free(env->engines);
    loop_free(env->loop);
}

static void ask_engine(struct model_call *t, struct sample *r)
{
    static const struct sampling sampling = SAMPLING_DEFAULTS;
    static const int32_t prompt[] = {1};
    static const struct token_span one = {prompt, 1};
    struct engine_request q = {.session_id = t->in.session_id,
                               .prompt = token_parts_of(&one),
                               .sampling = &sampling,
                               .unwanted = &t->failing};

    r->model_call = t;
    r->call = engine_start(t->env->engines, &q, &sample_events, r);
}

/* Begins a call with this number of answers and clients. */
static struct model_call *begin(struct str session, uint32_t answers, unsigned clients)
{
    struct call_env *env = &fx.env;
    struct arena arena = {0};
    struct model_call *t = ARENA_NEW(&arena, struct model_call);

    t->env = env;
    t->in = (struct call_input){.session_id = session, .req = &fx.request, .dialect = ""};
    t->cause = t->outcome = "";
    t->waits = ARENA_NEW(&arena, struct call_waits);
    t->waits->model_call = t;
    t->rendered = true;
    t->samples = arena_calloc(&arena, answers, sizeof(*t->samples));
    for (; t->n_samples < answers; t->n_samples++)
        ask_engine(t, &t->samples[t->n_samples]);
    for (unsigned i = 0; i < clients; i++) {
        struct call_listener *l = ARENA_NEW(&arena, struct call_listener);

        l->sink = &sink;
        call_listeners_add(t, l);
    }
    t->arena = arena;
    list_prepend(&env->running, &t->item);
    env->n_running++;
    call_rows_add(env, t);
    return t;
}

static void begin_some(struct str session, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        (void)begin(session, 1, 1);
}

/* Iterates until as many attempts have begun as the engine takes at once. An iteration of a slow
 * machine may end before it has done all that is due. */
static void await_begun(void)
{
    for (unsigned turns = 0; fx.begun < RUNNING; turns++) {
        cr_assert_lt(turns, 10000);
        (void)loop_poll(fx.env.loop, 0);
    }
}

/* Returns the number of ended objects, as a step counts them. */
static size_t ended(size_t calls, size_t asked)
{
    return told() + (calls - fx.env.n_running) + (asked - engine_pool_inflight(fx.env.engines));
}

/* Ends the session. Checks that no iteration ends more than a step may. Returns the number of
 * iterations until `left` calls remained. */
static unsigned end_in_turns(size_t left)
{
    struct call_env *env = &fx.env;
    size_t calls = env->n_running, asked = engine_pool_inflight(env->engines), before = 0;
    unsigned turns = 0;

    model_call_end_session(env, ENDED);
    for (;; turns++) {
        size_t now = ended(calls, asked);

        cr_assert_leq(now - before, STEP, "%zu in turn %u", now - before, turns);
        cr_assert_lt(turns, 10000);
        before = now;
        if (env->n_running == left)
            return turns;
        (void)loop_poll(env->loop, 0);
    }
}

TEST(ended_calls, fail_a_few_in_a_turn)
{
    open_env();
    begin_some(OTHER, 5);
    begin_some(ENDED, 60);
    (void)loop_poll(fx.env.loop, 0);
    cr_expect_geq(end_in_turns(5), 60 * 3 / STEP - 1);
    cr_expect_eq(fx.failed[ERR_SESSION_ENDED], 60);
    cr_expect_eq(told(), 60);
    for (unsigned turns = 0; fx.ends == 0 && turns < 10000; turns++)
        (void)loop_poll(fx.env.loop, 0);
    cr_expect_eq(fx.ends, 1, "the engine hears of it behind the last");
    model_call_end_all(&fx.env);
    cr_expect_eq(fx.failed[ERR_DRAINING], 5);
    close_env();
}

TEST(ended_calls, one_of_many_answers_and_clients_takes_turns_too)
{
    open_env();
    (void)begin(ENDED, 100, 70);
    (void)loop_poll(fx.env.loop, 0);
    cr_expect_geq(end_in_turns(0), 170 / STEP - 1);
    cr_expect_eq(fx.failed[ERR_SESSION_ENDED], 70);
    close_env();
}

/* Running answers end before their calls fail. Their slots at the engine are used by the other
 * session, and they are not reported. */
TEST(ended_calls, begin_nothing_more)
{
    static const int32_t ids[] = {7};
    struct engine_result r = {
        .finish = ENGINE_LENGTH, .stop_id = -1, .ids = {ids, 1}, .cached_tokens = -1};

    open_env();
    begin_some(ENDED, 40);
    await_begun();
    begin_some(OTHER, 5);
    model_call_end_session(&fx.env, ENDED);
    cr_assert_gt(fx.env.n_running, 5 + RUNNING, "some are left");
    cr_expect_eq(fx.env.n_running - fx.env.n_leaving, 5, "which count for --max-inflight no more");
    for (unsigned i = 0; i < RUNNING; i++)
        fx.attempts[i].events->done(fx.attempts[i].ctx, &r);
    fx.begun_of_ended = fx.begun = 0;
    await_begun();
    cr_expect_eq(fx.begun_of_ended, 0);
    cr_expect_eq(fx.begun, RUNNING);
    tasks_finish(fx.env.tasks, true);
    model_call_end_all(&fx.env);
    cr_expect_eq(fx.failed[ERR_SESSION_ENDED], 40);
    cr_expect_eq(fx.failed[ERR_DRAINING], 5);
    close_env();
}

static bool is_gone(struct call_listener *l)
{
    (void)l;
    return true;
}

/* Between the steps no request finds such a call, none of its steps runs, and a leaving client has
 * no effect. */
TEST(ended_calls, are_as_good_as_failed)
{
    struct call_input in = {.session_id = ENDED, .req = &fx.request};
    struct model_call *oldest;

    open_env();
    oldest = begin(ENDED, 1, 1);
    begin_some(ENDED, 40);
    cr_assert_eq(model_call_find(&fx.env, &in, is_gone), oldest);
    model_call_end_session(&fx.env, ENDED);
    cr_expect_null(model_call_find(&fx.env, &in, is_gone));
    cr_expect_null(model_call_find(&fx.env, &in, NULL));
    oldest->n_taken = oldest->n_samples; /* it would read a plan, which does not exist */
    model_call_go_on(oldest);
    cr_expect_not(oldest->answered);
    model_call_leave(oldest->listeners);
    while (fx.env.n_running > 0)
        (void)loop_poll(fx.env.loop, 0);
    cr_expect_eq(fx.failed[ERR_SESSION_ENDED], 40, "all but the one that left");
    close_env();
}

/* A new session with that id, and a call whose commit is written, continue. */
TEST(ended_calls, of_a_session_that_is_made_anew_go_on)
{
    struct model_call *committed, *anew;

    open_env();
    committed = begin(ENDED, 0, 1);
    committed->answered = true;
    committed->committed = true;
    begin_some(ENDED, 40);
    model_call_end_session(&fx.env, ENDED);
    anew = begin(ENDED, 1, 1);
    while (fx.env.n_running > 2)
        (void)loop_poll(fx.env.loop, 0);
    cr_expect_eq(fx.failed[ERR_SESSION_ENDED], 40);
    cr_expect_eq(told(), 40);
    cr_expect(!anew->failing && !committed->failing);
    cr_expect_eq(call_rows_find(&fx.env, ENDED), anew->row);
    model_call_end_all(&fx.env);
    cr_expect_eq(fx.failed[ERR_DRAINING], 2);
    cr_expect_null(call_rows_find(&fx.env, ENDED));
    close_env();
}

/* No client is left, or one of its answers has failed. */
TEST(ended_calls, one_of_many_answers_that_nobody_wants_aborts_all)
{
    struct err e = {0};
    struct model_call *t;
    struct call_input in = {.session_id = OTHER, .req = &fx.request};

    open_env();
    t = begin(OTHER, 100, 1);
    (void)loop_poll(fx.env.loop, 0);
    model_call_leave(t->listeners);
    while (fx.env.n_running > 0)
        (void)loop_poll(fx.env.loop, 0);
    cr_expect_null(model_call_find(&fx.env, &in, NULL));
    cr_expect_eq(engine_pool_inflight(fx.env.engines), 0);
    cr_expect_eq(told(), 0);

    t = begin(OTHER, 100, 2);
    (void)err_set(&e, ERR_ENGINE_INVALID, "it broke");
    model_call_fail_later(t, &e);
    while (fx.env.n_running > 0)
        (void)loop_poll(fx.env.loop, 0);
    cr_expect_eq(engine_pool_inflight(fx.env.engines), 0);
    cr_expect_eq(fx.failed[ERR_ENGINE_INVALID], 2);
    close_env();
}
