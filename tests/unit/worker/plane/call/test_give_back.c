/* Memory of ended requests: helpers free long memory, which counts until it is freed. */
#include "worker/plane/call/give_back.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "common/base/arena.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/os/helpers.h"
#include "common/os/loop.h"
#include "testing.h"
#include "worker/plane/call/call_env.h"

enum { WAIT_MS = 10000, CHUNK = 1 << 20, CHUNKS = 20 };

struct fixture {
    struct call_env env;
    struct helper_job blocker; /* uses the only thread until the gate is open */
};

static atomic_bool gate;
static atomic_size_t sum;
static pthread_t test_thread;
static atomic_int let_here, let_there; /* number of frees in the test's thread, and in others */

static void wait_at_gate(struct helper_job *j, void *tool)
{
    (void)j;
    (void)tool;
    while (!atomic_load(&gate) && !cancel_wanted())
        (void)usleep(200);
}

static void passed(struct helper_job *j, enum helper_end end)
{
    (void)j;
    (void)end;
}

static void on_let(void *thing)
{
    (void)thing;
    atomic_fetch_add(pthread_equal(pthread_self(), test_thread) ? &let_here : &let_there, 1);
}

static struct arena filled(size_t chunks, size_t each)
{
    struct arena a = {.sum = &sum};

    for (size_t i = 0; i < chunks; i++)
        (void)arena_alloc(&a, each);
    arena_hold(&a, on_let, NULL);
    return a;
}

static void open_pool(struct fixture *f)
{
    struct helpers_options o = {.threads = 1};
    struct err e;

    *f = (struct fixture){.blocker = {.run = wait_at_gate, .done = passed}};
    test_thread = pthread_self();
    f->env.loop = loop_new(&e);
    cr_assert_eq(helpers_new(f->env.loop, &o, &f->env.helpers, &e), 0);
    helpers_push(f->env.helpers, &f->blocker, STR("other"));
}

static void close_pool(struct fixture *f)
{
    struct helpers *h = f->env.helpers;

    f->env.helpers = NULL;
    cr_assert_eq(helpers_free(h), 0);
    call_free_later_end(&f->env, false);
    loop_free(f->env.loop);
    cr_assert_eq(atomic_load(&sum), 0);
}

TEST(give_back, a_long_arena_is_a_helpers_and_counts_until_it_is_gone)
{
    uint64_t end_ms = clock_ms() + WAIT_MS;
    struct fixture f;
    struct arena a;

    open_pool(&f);
    a = filled(CHUNKS, CHUNK);
    call_free_later(&f.env, &a, STR("s"));
    cr_assert_null(a.chunks);
    cr_assert(atomic_load(&sum) >= (size_t)CHUNKS * CHUNK);
    cr_assert_not(helpers_busy(f.env.helpers, STR("s")), "the session's own work does not wait");
    atomic_store(&gate, true);
    while (atomic_load(&sum) > 0 && clock_ms() < end_ms)
        (void)loop_poll(f.env.loop, 10);
    cr_assert_eq(atomic_load(&sum), 0);
    cr_assert(atomic_load(&let_there) == 1 && atomic_load(&let_here) == 0);
    close_pool(&f);
}

TEST(give_back, a_short_arena_is_freed_at_once)
{
    struct fixture f;
    struct arena a;

    open_pool(&f);
    a = filled(1, 1000);
    call_free_later(&f.env, &a, STR("s"));
    cr_assert_eq(atomic_load(&sum), 0);
    cr_assert_eq(atomic_load(&let_here), 1);
    close_pool(&f);
}

TEST(give_back, what_waits_at_the_end_is_freed_there)
{
    struct fixture f;
    struct arena a[3];

    open_pool(&f);
    for (int i = 0; i < 3; i++) {
        a[i] = filled(CHUNKS, CHUNK);
        call_free_later(&f.env, &a[i], i < 2 ? STR("s") : STR("t"));
    }
    close_pool(&f);
    cr_assert_eq(atomic_load(&let_here), 3);
}

TEST(give_back, without_helpers_the_loop_frees_it)
{
    struct call_env env = {0};
    struct arena a = filled(CHUNKS, CHUNK);

    test_thread = pthread_self();
    call_free_later(&env, &a, STR("s"));
    cr_assert_eq(atomic_load(&sum), 0);
}
