#include "common/os/helpers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/os/loop.h"
#include "testing.h"

enum { WAIT_MS = 10000 };

/* A job that spins for a time, or until it is cancelled or its gate opens. */
struct work {
    struct helper_job job;
    uint64_t spin_us;
    atomic_bool *gate; /* the job returns when it is set; or NULL */
    bool deaf;         /* does not check whether it is cancelled */
    int steps;         /* additional periods of spinning */
    atomic_bool began;
    bool saw_cancel;
    void *tool;
    enum helper_end end;
    int told; /* order of its end, from 1; 0: not reported */
};

/* --- the pool's lock (the linker puts these between) --- */

int __real_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);

static _Thread_local bool on_loop; /* true in the test's thread */
static _Thread_local int n_waits;  /* number of blocking locks in that thread */
static _Thread_local int n_taken;  /* number of coming trylocks that fail */

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
    n_waits += on_loop;
    return __real_pthread_mutex_lock(m);
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *m)
{
    if (!on_loop || n_taken == 0)
        return __real_pthread_mutex_trylock(m);
    n_taken--;
    return EBUSY;
}

/* --- jobs --- */

static int n_told;

static void run(struct helper_job *j, void *tool)
{
    struct work *w = CONTAINER_OF(j, struct work, job);
    uint64_t until = clock_us() + w->spin_us;

    w->tool = tool;
    atomic_store(&w->began, true);
    while (w->gate ? !atomic_load(w->gate) : clock_us() < until) {
        if (!w->deaf && cancel_wanted()) {
            w->saw_cancel = true;
            return;
        }
        if (w->steps > 0 && clock_us() >= until) {
            w->steps--;
            until += w->spin_us;
            helpers_step();
        }
    }
}

static void done(struct helper_job *j, enum helper_end end)
{
    struct work *w = CONTAINER_OF(j, struct work, job);

    w->end = end;
    w->told = ++n_told;
}

static struct loop *loop;

static struct helpers *pool(struct helpers_options o)
{
    struct helpers *h;
    struct err e;

    loop = loop_new(&e);
    cr_assert_not_null(loop);
    cr_assert_eq(helpers_new(loop, &o, &h, &e), 0, "%s", e.text);
    n_told = 0;
    return h;
}

static void push(struct helpers *h, struct work *w, const char *key)
{
    w->job.run = run;
    w->job.done = done;
    helpers_push(h, &w->job, str_cstr(key));
}

static void until_least_told(int n)
{
    uint64_t end_ms = clock_ms() + WAIT_MS;

    while (n_told < n && clock_ms() < end_ms)
        (void)loop_poll(loop, 50);
    cr_assert(n_told >= n);
}

static void until_told(int n)
{
    until_least_told(n);
    cr_assert_eq(n_told, n);
}

static void until_begun(struct work *w)
{
    uint64_t end_ms = clock_ms() + WAIT_MS;

    while (!atomic_load(&w->began) && clock_ms() < end_ms)
        (void)loop_poll(loop, 1); /* performs work that a failed trylock has deferred */
    cr_assert(atomic_load(&w->began));
}

static void close_pool(struct helpers *h)
{
    cr_assert_eq(helpers_free(h), 0);
    loop_free(loop);
}

TEST(helpers, a_job_runs_and_is_told_on_the_loop)
{
    struct helpers *h = pool((struct helpers_options){.threads = 2});
    struct work w = {0};

    push(h, &w, "a");
    cr_assert(helpers_busy(h, STR("a")));
    cr_assert_eq(helpers_jobs(h, STR("a")), 1);
    cr_assert_not(helpers_busy(h, STR("b")));
    until_told(1);
    cr_assert_eq(w.end, HELPER_DONE);
    cr_assert(w.job.began_us >= w.job.pushed_us && w.job.ended_us >= w.job.began_us);
    cr_assert_not(helpers_busy(h, STR("a")));
    close_pool(h);
}

TEST(helpers, jobs_of_a_key_run_in_order_one_at_a_time)
{
    struct helpers *h = pool((struct helpers_options){.threads = 3});
    atomic_bool gate = false;
    struct work w[6] = {{.gate = &gate}};

    for (int i = 0; i < 6; i++)
        push(h, &w[i], "a");
    until_begun(&w[0]);
    for (int i = 0; i < 20; i++)
        (void)loop_poll(loop, 1);
    cr_assert_not(atomic_load(&w[1].began));
    atomic_store(&gate, true);
    until_told(6);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(w[i].told, i + 1);
    close_pool(h);
}

TEST(helpers, keys_share_the_thread_by_time)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool gate = false;
    struct work first = {.gate = &gate}, greedy[8] = {0}, modest[8] = {0};

    push(h, &first, "first");
    until_begun(&first);
    for (int i = 0; i < 8; i++) {
        greedy[i].spin_us = 40000;
        push(h, &greedy[i], "greedy");
    }
    for (int i = 0; i < 8; i++) {
        modest[i].spin_us = 500;
        push(h, &modest[i], "modest");
    }
    atomic_store(&gate, true);
    until_told(17);
    cr_assert(modest[7].told < greedy[5].told, "%d %d", modest[7].told, greedy[5].told);
    cr_assert(greedy[0].told < modest[7].told, "a long job is not put off for ever");
    close_pool(h);
}

TEST(helpers, used_time_is_remembered_between_single_jobs)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool gate = false;
    struct work a = {.spin_us = 30000}, first = {.gate = &gate}, again = {0}, b = {0};

    push(h, &a, "greedy");
    until_told(1);
    push(h, &first, "first");
    until_begun(&first);
    push(h, &again, "greedy");
    push(h, &b, "modest");
    atomic_store(&gate, true);
    until_told(4);
    cr_assert(b.told < again.told);
    close_pool(h);
}

/* Polls the loop n times, so that threads could take jobs that they must not take. */
static void turns(int n)
{
    for (int i = 0; i < n; i++)
        (void)loop_poll(loop, 1);
}

TEST(helpers, long_jobs_leave_the_last_thread_to_short_ones)
{
    static const char *const keys[] = {"a", "b", "c", "d"};
    struct helpers *h = pool((struct helpers_options){.threads = 3});
    atomic_bool gate = false;
    struct work w[4] = {0}, brief[3] = {0};

    for (int i = 0; i < 4; i++) {
        w[i].gate = &gate;
        w[i].job.is_long = true;
        push(h, &w[i], keys[i]);
    }
    until_begun(&w[0]);
    until_begun(&w[1]);
    turns(20);
    cr_assert_not(atomic_load(&w[2].began) || atomic_load(&w[3].began));
    for (int i = 0; i < 3; i++)
        push(h, &brief[i], i < 2 ? "e" : "f");
    until_told(3);
    cr_assert_not(atomic_load(&w[2].began) || atomic_load(&w[3].began));
    atomic_store(&gate, true);
    until_told(7);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(w[i].end, HELPER_DONE);
    close_pool(h);
}

TEST(helpers, a_short_job_waits_for_the_long_one_of_its_key)
{
    struct helpers *h = pool((struct helpers_options){.threads = 2});
    atomic_bool gate = false;
    struct work first = {.gate = &gate, .job.is_long = true}, second = {.job.is_long = true};
    struct work brief = {0};

    push(h, &first, "a");
    until_begun(&first);
    push(h, &second, "b");
    push(h, &brief, "b");
    turns(20);
    cr_assert_not(atomic_load(&second.began) || atomic_load(&brief.began));
    atomic_store(&gate, true);
    until_told(3);
    cr_assert(first.told < second.told && second.told < brief.told);
    close_pool(h);
}

TEST(helpers, a_long_job_that_waits_is_cancelled_without_running)
{
    struct helpers *h = pool((struct helpers_options){.threads = 2});
    atomic_bool gate = false;
    struct work first = {.gate = &gate, .job.is_long = true}, second = {.job.is_long = true};
    struct work third = {.job.is_long = true};

    push(h, &first, "a");
    until_begun(&first);
    push(h, &second, "b");
    push(h, &third, "b");
    turns(5);
    helpers_cancel(h, &second.job);
    until_told(1);
    cr_assert_eq(second.end, HELPER_CANCELLED);
    atomic_store(&gate, true);
    until_told(3);
    cr_assert_not(atomic_load(&second.began));
    cr_assert_eq(third.end, HELPER_DONE);
    close_pool(h);
}

TEST(helpers, one_thread_alone_takes_long_jobs_too)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    struct work w[2] = {{.job.is_long = true}, {.job.is_long = true}};

    push(h, &w[0], "a");
    push(h, &w[1], "b");
    until_told(2);
    close_pool(h);
}

TEST(helpers, a_job_that_waits_is_cancelled_without_running)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool gate = false;
    struct work w[3] = {{.gate = &gate}};

    for (int i = 0; i < 3; i++)
        push(h, &w[i], "a");
    until_begun(&w[0]);
    helpers_cancel(h, &w[1].job);
    until_told(1);
    cr_assert_eq(w[1].end, HELPER_CANCELLED);
    cr_assert_eq(w[1].told, 1);
    atomic_store(&gate, true);
    until_told(3);
    cr_assert_not(atomic_load(&w[1].began));
    cr_assert_eq(w[2].end, HELPER_DONE);
    close_pool(h);
}

TEST(helpers, a_running_job_hears_that_it_is_cancelled)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool never = false;
    struct work w = {.gate = &never};

    push(h, &w, "a");
    until_begun(&w);
    helpers_cancel(h, &w.job);
    until_told(1);
    cr_assert_eq(w.end, HELPER_CANCELLED);
    cr_assert(w.saw_cancel);
    close_pool(h);
}

static struct helpers *asked;

static void on_asked(void *ctx)
{
    *(int *)ctx += loop_now_ms(loop) > 0;
}

struct asking {
    struct helper_job job;
    int n;
    bool answered;
};

static void run_asking(struct helper_job *j, void *tool)
{
    struct asking *a = CONTAINER_OF(j, struct asking, job);

    (void)tool;
    a->answered = helpers_ask(asked, on_asked, &a->n) && helpers_ask(asked, on_asked, &a->n);
}

static void done_asking(struct helper_job *j, enum helper_end end)
{
    (void)j;
    n_told += end == HELPER_DONE;
}

TEST(helpers, a_job_asks_the_loop)
{
    struct asking a = {.job = {.run = run_asking, .done = done_asking}}, late = a;

    asked = pool((struct helpers_options){.threads = 2});
    helpers_push(asked, &a.job, STR("a"));
    until_told(1);
    cr_assert(a.answered);
    cr_assert_eq(a.n, 2);
    helpers_push(asked, &late.job, STR("a")); /* the loop is not polled again */
    (void)usleep(2000);
    close_pool(asked);
    cr_assert_not(late.answered);
}

static unsigned lost;

static void on_lost(void *ctx, unsigned n)
{
    (void)ctx;
    lost = n;
}

/* Its thread is abandoned after twice the limit. Only a machine that stands still for that time
 * could fail the test. */
TEST(helpers, a_job_beyond_its_time_is_cancelled)
{
    struct helpers *h =
        pool((struct helpers_options){.threads = 1, .limit_ms = 3000, .on_lost = on_lost});
    atomic_bool never = false;
    struct work polite = {.gate = &never};

    push(h, &polite, "a");
    until_told(1);
    cr_assert_eq(polite.end, HELPER_CANCELLED);
    cr_assert_eq(lost, 0);
    close_pool(h);
}

TEST(helpers, jobs_may_be_given_more_time_and_never_less)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1, .limit_ms = 20});
    struct work w = {.spin_us = 300 * 1000};

    push(h, &w, "a");
    helpers_lengthen(h, 3600 * 1000);
    helpers_lengthen(h, 1);
    until_told(1);
    cr_assert_eq(w.end, HELPER_DONE);
    cr_assert_not(w.saw_cancel);
    close_pool(h);
}

TEST(helpers, a_job_of_steps_has_the_time_for_each)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1, .limit_ms = 400});
    struct work w = {.spin_us = 50 * 1000, .steps = 20};

    push(h, &w, "a");
    until_told(1);
    cr_assert_eq(w.end, HELPER_DONE);
    cr_assert_not(w.saw_cancel);
    close_pool(h);
}

/* The machine must not stand still for that time while the next job runs. */
TEST(helpers, a_deaf_job_is_given_up)
{
    struct helpers *h =
        pool((struct helpers_options){.threads = 1, .limit_ms = 1500, .on_lost = on_lost});
    atomic_bool gate = false;
    struct work deaf = {.gate = &gate, .deaf = true}, after = {0};

    push(h, &deaf, "a");
    push(h, &after, "a");
    until_told(2);
    cr_assert_eq(deaf.end, HELPER_STUCK);
    cr_assert_eq(after.end, HELPER_DONE, "another thread takes the lost one's place");
    cr_assert_eq(lost, 1);
    atomic_store(&gate, true);
    close_pool(h); /* the abandoned thread returned at last */
    cr_assert_eq(deaf.told, 1);
}

TEST(helpers, a_long_job_that_is_given_up_makes_room_for_the_next)
{
    struct helpers *h =
        pool((struct helpers_options){.threads = 2, .limit_ms = 1500, .on_lost = on_lost});
    atomic_bool gate = false;
    struct work deaf = {.gate = &gate, .deaf = true, .job.is_long = true};
    struct work after = {.job.is_long = true};

    push(h, &deaf, "a");
    until_begun(&deaf);
    push(h, &after, "b");
    turns(20);
    cr_assert_not(atomic_load(&after.began));
    until_told(2);
    cr_assert_eq(deaf.end, HELPER_STUCK);
    cr_assert_eq(after.end, HELPER_DONE);
    atomic_store(&gate, true);
    close_pool(h);
}

TEST(helpers, who_is_lost_for_good_is_counted_at_the_end)
{
    struct helpers *h = pool((struct helpers_options){.threads = 2});
    static atomic_bool gate;
    static struct work deaf = {.deaf = true};

    deaf.gate = &gate;
    push(h, &deaf, "a");
    until_begun(&deaf);
    cr_assert_eq(helpers_free(h), 1);
    loop_free(loop);
    (void)fflush(NULL);
    _exit(0); /* the memory that it uses is not freed */
}

static int tools;

static void *tool_new(void *ctx)
{
    __atomic_add_fetch((int *)ctx, 1, __ATOMIC_RELAXED);
    return ctx;
}

static void tool_free(void *tool)
{
    __atomic_sub_fetch((int *)tool, 1, __ATOMIC_RELAXED);
}

TEST(helpers, each_thread_makes_its_tool_when_it_is_needed)
{
    struct helpers *h = pool((struct helpers_options){
        .threads = 2, .tool_new = tool_new, .tool_free = tool_free, .ctx = &tools});
    struct work w = {0};

    cr_assert_eq(__atomic_load_n(&tools, __ATOMIC_RELAXED), 0);
    push(h, &w, "a");
    until_told(1);
    cr_assert_eq(w.tool, &tools);
    cr_assert_eq(__atomic_load_n(&tools, __ATOMIC_RELAXED), 1);
    close_pool(h);
    cr_assert_eq(__atomic_load_n(&tools, __ATOMIC_RELAXED), 0);
}

TEST(helpers, what_runs_and_waits_at_the_end_is_dropped)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool never = false;
    struct work w[2] = {{.gate = &never}, {.gate = &never}};

    push(h, &w[0], "a");
    push(h, &w[1], "b");
    until_begun(&w[0]);
    close_pool(h);
    cr_assert(w[0].saw_cancel);
    cr_assert_not(atomic_load(&w[1].began));
    cr_assert_eq(n_told, 0);
}

/* The thread that holds the lock may not be running. */
TEST(helpers, the_loop_never_waits_for_a_lock)
{
    struct helpers *h = pool((struct helpers_options){.threads = 3, .limit_ms = 4});
    atomic_bool gate = false;
    struct work w[60] = {{.gate = &gate}};

    on_loop = true;
    n_waits = 0;
    for (int i = 0; i < 60; i++)
        push(h, &w[i], i % 2 ? "a" : "b");
    for (int i = 30; i < 60; i++)
        helpers_cancel(h, &w[i].job);
    until_least_told(30); /* and for timed out ones */
    atomic_store(&gate, true);
    until_told(60);
    cr_assert_eq(n_waits, 0);
    on_loop = false;
    close_pool(h);
}

TEST(helpers, what_needs_a_lock_that_is_taken_is_done_later)
{
    struct helpers *h = pool((struct helpers_options){.threads = 1});
    atomic_bool gate = false;
    struct work first = {.gate = &gate}, w[5] = {0};

    push(h, &first, "a");
    until_begun(&first);
    on_loop = true;
    n_taken = 1; /* for the push */
    push(h, &w[0], "a");
    cr_assert_eq(n_taken, 0);
    until_told(0);
    push(h, &w[1], "a");
    n_taken = 2; /* for the push, and for cancelling a job in its lane */
    push(h, &w[2], "a");
    helpers_cancel(h, &w[1].job);
    helpers_cancel(h, &w[1].job);
    helpers_cancel(h, &w[2].job); /* one that is not in its lane yet */
    helpers_cancel(h, &w[2].job);
    until_told(2);
    cr_assert_eq(n_taken, 0);
    cr_assert(w[1].end == HELPER_CANCELLED && w[2].end == HELPER_CANCELLED);
    n_taken = 3; /* for the report of their ends */
    atomic_store(&gate, true);
    until_told(4);
    cr_assert_eq(n_taken, 0);
    cr_assert_eq(w[0].end, HELPER_DONE);
    cr_assert_eq(first.end, HELPER_DONE);
    for (int i = 1; i <= 2; i++)
        cr_assert_not(atomic_load(&w[i].began));
    on_loop = false;
    close_pool(h);
}

static atomic_bool tool_gate;

static void *slow_tool_new(void *ctx)
{
    while (!atomic_load(&tool_gate))
        (void)usleep(100);
    return ctx;
}

TEST(helpers, a_thread_that_makes_its_tool_holds_nobody_up)
{
    struct helpers *h = pool((struct helpers_options){
        .threads = 2, .tool_new = slow_tool_new, .tool_free = tool_free, .ctx = &tools});
    struct work w[2] = {0};

    push(h, &w[0], "a");
    for (int i = 0; i < 20; i++)
        (void)loop_poll(loop, 1);
    push(h, &w[1], "a");
    helpers_cancel(h, &w[1].job);
    until_told(1);
    cr_assert_eq(w[1].end, HELPER_CANCELLED);
    atomic_store(&tool_gate, true);
    until_told(2);
    close_pool(h);
}
