#include "common/os/task.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/os/helpers.h"
#include "common/os/loop.h"
#include "testing.h"

enum { STEPS = 3 };

static struct loop *loop;
static struct tasks *tasks;
static char written[64]; /* a letter for each step of a task */
static size_t n_written;

static void begin(bool always)
{
    struct err e = {0};

    loop = loop_new(&e);
    tasks = tasks_new(loop);
    tasks_yield_always(tasks, always);
}

static void end(void)
{
    tasks_finish(tasks, true);
    cr_assert_eq(tasks_count(tasks), 0u);
    tasks_free(tasks);
    loop_free(loop);
}

static void run_loop(void)
{
    while (loop_next_timeout_ms(loop) == 0)
        (void)loop_poll(loop, 0);
}

static void add_letter(char c)
{
    written[n_written++] = c;
    written[n_written] = '\0';
}

/* Reports whether a child process that runs fn is killed by that signal. */
static bool is_killed_by(int sig, void (*fn)(void))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        (void)freopen("/dev/null", "w", stderr);
        fn();
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == sig;
}

/* --- pauses --- */

/* Returns the argument of walk. */
static void *letter(char c)
{
    return (void *)(uintptr_t)c;
}

static void walk(void *ctx)
{
    for (int i = 0; i < STEPS; i++) {
        add_letter((char)(uintptr_t)ctx);
        if (task_pause(NULL))
            return;
    }
}

TEST(task, pause_outside_a_task_does_nothing)
{
    struct err e = {0};

    cr_assert_eq(task_pause(&e), 0);
    cr_assert_eq(task_turns(), 0u);
}

TEST(task, each_pause_lets_the_next_owner_run)
{
    begin(true);
    cr_assert_not_null(task_start(tasks, STR("one"), walk, letter('a')));
    cr_assert_not_null(task_start(tasks, STR("one"), walk, letter('b')));
    cr_assert_not_null(task_start(tasks, STR("two"), walk, letter('c')));
    run_loop();
    cr_assert_eq(strcmp(written, "abcacbcab"), 0, "%s", written);
    end();
}

static void spin(void *ctx)
{
    int *n = ctx;

    for (int i = 0; i < STEPS; i++) {
        uint64_t until_us = clock_us() + 200;

        while (clock_us() < until_us) {
        }
        ++*n;
        if (task_pause(NULL))
            return;
    }
}

TEST(task, an_iteration_ends_when_the_quota_is_used_up)
{
    int n = 0, before;

    begin(false);
    for (int i = 0; i < 8; i++)
        (void)task_start(tasks, STR("one"), spin, &n);
    while (loop_next_timeout_ms(loop) == 0) {
        before = n;
        (void)loop_poll(loop, 0);
        cr_assert_leq(n - before, 4);
    }
    cr_assert_eq(n, 8 * STEPS);
    end();
}

enum { BEHIND = 200 };

static struct loop_task behind[BEHIND];
static size_t n_behind;

static void on_behind(struct loop_task *t)
{
    uint64_t until_us = clock_us() + 100;

    while (clock_us() < until_us) {
    }
    n_behind++;
    loop_task_post_behind(loop, t, on_behind);
}

TEST(task, a_pause_does_not_wait_for_what_others_have_posted_behind)
{
    begin(true);
    for (size_t i = 0; i < BEHIND; i++)
        loop_task_post_behind(loop, &behind[i], on_behind);
    (void)task_start(tasks, STR("one"), walk, letter('a'));
    while (tasks_count(tasks) > 0)
        (void)loop_poll(loop, 0);
    cr_assert(n_behind < BEHIND);
    for (size_t i = 0; i < BEHIND; i++)
        loop_task_cancel(loop, &behind[i]);
    end();
}

static void count_turns(void *ctx)
{
    uint64_t *turns = ctx;

    (void)task_pause(NULL);
    *turns = task_turns();
}

TEST(task, turns_count_how_often_others_could_run)
{
    uint64_t turns = 0;

    begin(true);
    (void)task_start(tasks, STR("one"), count_turns, &turns);
    run_loop();
    cr_assert_eq(turns, 1u);
    end();
}

static void start_walk(void *ctx)
{
    (void)task_start(tasks, STR("inner"), walk, ctx);
    add_letter('o');
}

TEST(task, a_task_starts_a_task)
{
    begin(true);
    (void)task_start(tasks, STR("outer"), start_walk, letter('i'));
    run_loop();
    cr_assert_eq(strcmp(written, "ioii"), 0, "%s", written);
    end();
}

TEST(task, more_tasks_than_the_pool_has_stacks_reuse_memory)
{
    begin(true);
    for (int round = 0; round < 3; round++) {
        n_written = 0;
        for (int i = 0; i < 20; i++)
            (void)task_start(tasks, STR(""), walk, letter('x'));
        run_loop();
        cr_assert_eq(n_written, 20u * STEPS);
    }
    end();
}

/* --- waits, cancels --- */

struct waiting {
    struct waiter w;
    struct err e;
    int rc;
    bool shields, ended;
};

static void wait_for_it(void *ctx)
{
    struct waiting *v = ctx;

    if (v->shields)
        task_shield();
    v->rc = task_wait(&v->w, &v->e);
    v->ended = true;
}

TEST(task, a_wait_ends_with_the_wake)
{
    struct waiting v = {0};

    begin(true);
    (void)task_start(tasks, STR(""), wait_for_it, &v);
    run_loop();
    cr_assert_not(v.ended);
    waiter_on_event(&v.w);
    cr_assert_not(v.ended);
    run_loop();
    cr_assert(v.ended && v.rc == 0);
    v.ended = false;
    waiter_wake(&v.w);
    cr_assert_null(task_start(tasks, STR(""), wait_for_it, &v));
    cr_assert(v.ended && v.rc == 0 && !v.w.woken);
    end();
}

TEST(task, a_cancel_ends_the_wait_unless_the_wake_was_first)
{
    struct waiting v = {0}, woken = {0};
    struct task *t;

    begin(true);
    t = task_start(tasks, STR(""), wait_for_it, &v);
    task_cancel(t);
    t = task_start(tasks, STR(""), wait_for_it, &woken);
    waiter_wake(&woken.w);
    task_cancel(t);
    run_loop();
    cr_assert(v.rc == -1 && v.e.kind == ERR_CANCELLED);
    cr_assert(woken.ended && woken.rc == 0);
    end();
}

TEST(task, a_shielded_task_is_not_cancelled)
{
    struct waiting v = {.shields = true};
    struct task *t;

    begin(true);
    t = task_start(tasks, STR(""), wait_for_it, &v);
    task_cancel(t);
    run_loop();
    cr_assert_not(v.ended);
    waiter_wake(&v.w);
    run_loop();
    cr_assert(v.ended && v.rc == 0);
    end();
}

TEST(task, finish_runs_all_tasks_to_their_end)
{
    static struct waiting v[100];

    begin(true);
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        (void)task_start(tasks, STR("one"), wait_for_it, &v[i]);
    (void)task_start(tasks, STR("two"), walk, letter('a'));
    end();
    for (size_t i = 0; i < ARRAY_LEN(v); i++)
        cr_assert(v[i].ended && v[i].rc == -1);
}

static void pause_atomic(void *ctx)
{
    (void)ctx;
    task_atomic(1);
    (void)task_pause(NULL);
}

static void run_atomic(void)
{
    begin(false);
    (void)task_start(tasks, STR(""), pause_atomic, NULL);
}

TEST(task, a_pause_inside_an_atomic_section_aborts)
{
    cr_assert(is_killed_by(SIGABRT, run_atomic));
}

/* --- stacks --- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static volatile int depth;

static void descend(int n)
{
    volatile char frame[1024];

    frame[n % 1024] = (char)n;
    depth = n;
    if (n < INT_MAX)
        descend(n + 1);
    depth = frame[n % 1024];
}

static void overflow(void *ctx)
{
    (void)ctx;
    descend(0);
}

static void run_overflow(void)
{
    begin(false);
    (void)task_start(tasks, STR("someone"), overflow, NULL);
}

static void fault_outside(void)
{
    begin(false);
    *(volatile int *)(uintptr_t)16 = 1; /* NOLINT */
}

TEST(task, an_overflow_aborts)
{
    cr_assert(is_killed_by(SIGABRT, run_overflow));
    cr_assert(is_killed_by(SIGSEGV, fault_outside));
}
#endif

/* --- helper threads --- */

struct offloading {
    struct err e;
    int rc;
    bool is_short, lost, returned;
    struct helpers *pool;
    void *tool;
    atomic_bool began, gate;
};

static int in_thread(void *ctx, void *tool, struct err *e)
{
    struct offloading *v = ctx;

    v->tool = tool;
    atomic_store(&v->began, true);
    while (!atomic_load(&v->gate)) {
        if (cancel_wanted())
            return cancel_fail(e);
        (void)usleep(100);
    }
    return err_set(e, ERR_INVALID, "from the thread");
}

static void on_lost(void *ctx)
{
    ((struct offloading *)ctx)->lost = true;
}

static void offload(void *ctx)
{
    struct offloading *v = ctx;
    struct task_work w = {.fn = in_thread,
                          .ctx = v,
                          .lane = STR("s"),
                          .is_short = v->is_short,
                          .is_long = !v->is_short,
                          .pool = v->pool};

    task_on_lost(on_lost, v);
    v->rc = task_offload(&w, &v->e);
    v->returned = true;
}

static struct helpers *new_helpers(uint64_t limit_ms)
{
    struct helpers_options o = {.threads = 2, .limit_ms = limit_ms};
    struct helpers *h = NULL;
    struct err e = {0};

    cr_assert_eq(helpers_new(loop, &o, &h, &e), 0);
    tasks_use_helpers(tasks, &(struct task_helpers){.h = h, .own_tool = loop});
    return h;
}

TEST(task, offload_without_threads_calls_the_function)
{
    struct offloading v = {.gate = true};

    begin(true);
    tasks_use_helpers(tasks, &(struct task_helpers){.own_tool = &v});
    cr_assert_null(task_start(tasks, STR(""), offload, &v));
    cr_assert(v.rc == -1 && v.tool == &v);
    end();
}

TEST(task, offload_does_short_work_at_once_unless_its_lane_has_jobs)
{
    struct offloading first = {.is_short = true, .gate = true}, before = {0},
                      after = {.is_short = true, .gate = true};
    struct helpers *h;

    begin(true);
    h = new_helpers(0);
    (void)task_start(tasks, STR(""), offload, &first);
    cr_assert(first.returned && first.tool == loop);
    (void)task_start(tasks, STR(""), offload, &before);
    (void)task_start(tasks, STR(""), offload, &after);
    cr_assert_not(after.returned);
    atomic_store(&before.gate, true);
    while (!after.returned)
        (void)loop_poll(loop, 10);
    cr_assert(before.returned && !after.tool);
    cr_assert_eq(helpers_free(h), 0u);
    end();
}

TEST(task, offload_to_another_pool_is_cancelled_there)
{
    struct offloading v = {0};
    struct helpers *h;
    struct task *t;

    begin(true);
    h = new_helpers(0);
    v.pool = h;
    tasks_use_helpers(tasks, &(struct task_helpers){.own_tool = &v});
    t = task_start(tasks, STR(""), offload, &v);
    cr_assert_not_null(t);
    task_cancel(t);
    while (!v.returned)
        (void)loop_poll(loop, 10);
    cr_assert(v.rc == -1 && v.e.kind == ERR_CANCELLED);
    cr_assert_eq(helpers_free(h), 0u);
    end();
}

TEST(task, offload_returns_what_the_thread_returned)
{
    struct offloading v = {0};
    struct helpers *h;

    begin(true);
    h = new_helpers(0);
    cr_assert_not_null(task_start(tasks, STR(""), offload, &v));
    atomic_store(&v.gate, true);
    while (!v.returned)
        (void)loop_poll(loop, 10);
    cr_assert(v.rc == -1 && v.e.kind == ERR_INVALID);
    cr_assert_eq(helpers_free(h), 0u);
    end();
}

TEST(task, a_cancelled_offload_returns_after_the_thread)
{
    struct offloading v = {0};
    struct helpers *h;
    struct task *t;

    begin(true);
    h = new_helpers(0);
    t = task_start(tasks, STR(""), offload, &v);
    while (!atomic_load(&v.began))
        (void)loop_poll(loop, 1);
    task_cancel(t);
    while (!v.returned)
        (void)loop_poll(loop, 10);
    cr_assert(v.rc == -1 && v.e.kind == ERR_CANCELLED);
    cr_assert_eq(helpers_free(h), 0u);
    end();
}

static int in_deaf_thread(void *ctx, void *tool, struct err *e)
{
    struct offloading *v = ctx;

    (void)tool;
    (void)e;
    atomic_store(&v->began, true);
    while (!atomic_load(&v->gate))
        (void)usleep(100);
    return 0;
}

static void offload_deaf(void *ctx)
{
    struct offloading *v = ctx;
    struct task_work w = {.fn = in_deaf_thread, .ctx = v, .lane = STR("s")};

    task_on_lost(on_lost, v);
    v->rc = task_offload(&w, &v->e);
    v->returned = true;
}

TEST(task, a_task_is_lost_to_a_hung_thread)
{
    static struct offloading v;
    struct helpers *h;

    begin(true);
    h = new_helpers(20);
    (void)task_start(tasks, STR(""), offload_deaf, &v);
    while (!v.lost)
        (void)loop_poll(loop, 10);
    run_loop();
    cr_assert_not(v.returned);
    tasks_finish(tasks, false);
    cr_assert_eq(tasks_count(tasks), 1u);
    atomic_store(&v.gate, true);
    (void)helpers_free(h);
}

/* --- stalls --- */

static uint64_t stalled_us;
static const void *stall_place;

static void on_stall(void *ctx, struct str owner, uint64_t us, const void *place)
{
    (void)ctx;
    cr_assert(str_eq_c(owner, "slow"));
    stalled_us = us;
    stall_place = place;
}

static void stall(void *ctx)
{
    (void)ctx;
    (void)usleep(3000);
    (void)task_pause(NULL);
}

TEST(task, a_stall_is_reported_with_its_place)
{
    begin(true);
    tasks_on_stall(tasks, 1000, on_stall, NULL);
    (void)task_start(tasks, STR("slow"), stall, NULL);
    cr_assert(stalled_us > 1000 && stall_place != NULL);
    run_loop();
    end();
}
