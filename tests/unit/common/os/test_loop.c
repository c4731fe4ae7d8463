#include "common/os/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "testing.h"

struct probe {
    struct loop_io io;
    struct loop_timer timer;
    struct loop_task task;
    struct loop *loop;
    struct probe *other;
    unsigned events;
    int calls, timers, tasks;
    bool again_now;
};

static void on_io(struct loop_io *io, unsigned events)
{
    struct probe *p = CONTAINER_OF(io, struct probe, io);

    p->events = events;
    p->calls++;
    if (p->other)
        loop_del(p->loop, &p->other->io);
}

static void on_timer(struct loop_timer *t)
{
    struct probe *p = CONTAINER_OF(t, struct probe, timer);

    p->timers++;
    if (p->again_now)
        loop_timer_set(p->loop, t, 0, on_timer);
}

static void on_task(struct loop_task *t)
{
    struct probe *p = CONTAINER_OF(t, struct probe, task);

    p->tasks++;
    if (p->again_now)
        loop_task_post(p->loop, t, on_task);
}

/* A loop, and what the tests add to it. */
struct circle {
    struct loop *l;
    struct probe p;
};

static void circle_open(struct circle *f)
{
    f->l = loop_new(NULL);
    f->p.loop = f->l;
}

static void circle_close(struct circle *f)
{
    loop_free(f->l);
}

enum { MANY = 10 };

/* Spins for a millisecond, the share of one kind of callbacks in an iteration. */
static void spin(void)
{
    uint64_t until_us = clock_us() + 1000;

    while (clock_us() < until_us)
        ;
}

static void on_long_io(struct loop_io *io, unsigned events)
{
    spin();
    on_io(io, events);
}

static void on_long_task(struct loop_task *t)
{
    spin();
    on_task(t);
}

static void pair(int fd[2])
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
}

TEST_WITH(loop, edges_are_reported_once_and_again_after_mod, circle)
{
    int fd[2];

    pair(fd);
    cr_assert_eq(loop_add(f->l, &f->p.io, fd[0], LOOP_IN | LOOP_RDHUP, on_io, NULL), 0);
    cr_assert_eq(loop_poll(f->l, 0), 0);
    cr_assert_eq(write(fd[1], "x", 1), 1);
    cr_assert_eq(loop_poll(f->l, 0), 1);
    cr_assert(f->p.events & LOOP_IN);
    cr_assert_eq(loop_poll(f->l, 0), 0, "an edge comes once");
    loop_mod(f->l, &f->p.io, LOOP_IN | LOOP_RDHUP | LOOP_OUT);
    cr_assert_eq(loop_poll(f->l, 0), 1, "the kernel looks again after a change");
    shutdown(fd[1], SHUT_WR);
    cr_assert_eq(loop_poll(f->l, 0), 1);
    cr_assert(f->p.events & LOOP_RDHUP);
    loop_del(f->l, &f->p.io);
    loop_del(f->l, &f->p.io);
    cr_assert_eq(write(fd[0], "x", 1), 1);
    cr_assert_eq(loop_poll(f->l, 0), 0);
    close(fd[0]);
    close(fd[1]);
}

TEST_WITH(loop, level_interest_comes_back, circle)
{
    int fd[2];

    pair(fd);
    cr_assert_eq(loop_add(f->l, &f->p.io, fd[0], LOOP_IN | LOOP_LEVEL, on_io, NULL), 0);
    cr_assert_eq(write(fd[1], "x", 1), 1);
    cr_assert_eq(loop_poll(f->l, 0), 1);
    cr_assert_eq(loop_poll(f->l, 0), 1);
    close(fd[0]);
    close(fd[1]);
}

TEST_WITH(loop, a_deleted_handle_gets_no_fetched_event, circle)
{
    struct probe *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));
    int fa[2], fb[2];

    a->loop = b->loop = f->l;
    a->other = b;
    b->other = a;
    pair(fa);
    pair(fb);
    cr_assert_eq(loop_add(f->l, &a->io, fa[0], LOOP_IN, on_io, NULL), 0);
    cr_assert_eq(loop_add(f->l, &b->io, fb[0], LOOP_IN, on_io, NULL), 0);
    cr_assert_eq(write(fa[1], "x", 1) + write(fb[1], "x", 1), 2);
    cr_assert_eq(loop_poll(f->l, 0), 1, "the first one removed the second");
    cr_assert_eq(a->calls + b->calls, 1);
    for (int i = 0; i < 2; i++) {
        close(fa[i]);
        close(fb[i]);
    }
    free(a);
    free(b);
}

TEST(loop, a_plain_file_is_refused)
{
    struct loop *l = loop_new(NULL);
    struct probe p = {.loop = l};
    struct err e = {0};
    FILE *f = tmpfile();

    cr_assert_eq(loop_add(l, &p.io, fileno(f), LOOP_IN, on_io, &e), -1);
    cr_assert_eq(e.kind, ERR_IO);
    cr_assert_eq(p.io.mask, 0);
    fclose(f);
    loop_free(l);
}

TEST_WITH(loop, timers_fire_in_order_and_can_be_moved_and_stopped, circle)
{
    enum { N = 500 };
    struct probe *p = calloc(N, sizeof(*p));
    int fired = 0;

    for (int i = 0; i < N; i++) {
        p[i].loop = f->l;
        loop_timer_set(f->l, &p[i].timer, (uint64_t)(i * 7919 % 50), on_timer);
    }
    for (int i = 0; i < N; i += 5)
        loop_timer_stop(f->l, &p[i].timer);
    for (int i = 1; i < N; i += 5)
        loop_timer_set(f->l, &p[i].timer, 3600000, on_timer);
    for (int i = 2; i < N; i += 5)
        loop_timer_set(f->l, &p[i].timer, 0, on_timer);
    while (fired < N * 3 / 5) {
        loop_poll(f->l, -1);
        fired = 0;
        for (int i = 0; i < N; i++) {
            fired += p[i].timers;
            cr_assert(p[i].timers <= (i % 5 >= 2));
        }
    }
    for (int i = 1; i < N; i += 5) {
        cr_assert(loop_timer_active(&p[i].timer));
        loop_timer_stop(f->l, &p[i].timer);
    }
    cr_assert_eq(loop_next_timeout_ms(f->l), -1);
    free(p);
}

TEST_WITH(loop, a_timer_set_for_now_in_its_own_call_does_not_starve_the_turn, circle)
{
    struct probe p = {.loop = f->l, .again_now = true};

    loop_timer_set(f->l, &p.timer, 0, on_timer);
    cr_assert_eq(loop_poll(f->l, -1), 1);
    cr_assert_eq(p.timers, 1);
    loop_timer_stop(f->l, &p.timer);
}

TEST_WITH(loop, tasks_run_once_per_turn, circle)
{
    struct probe a = {.loop = f->l, .again_now = true}, b = {.loop = f->l};

    loop_task_post(f->l, &a.task, on_task);
    loop_task_post(f->l, &a.task, on_task);
    loop_task_post(f->l, &b.task, on_task);
    loop_task_cancel(f->l, &b.task);
    cr_assert_eq(loop_next_timeout_ms(f->l), 0);
    cr_assert_eq(loop_poll(f->l, -1), 1);
    cr_assert_eq(loop_poll(f->l, -1), 1, "posted by itself: next turn, without waiting");
    cr_assert_eq(a.tasks, 2);
    cr_assert_eq(b.tasks, 0);
    loop_task_cancel(f->l, &a.task);
    cr_assert_eq(loop_poll(f->l, 0), 0);
}

TEST_WITH(loop, long_tasks_leave_room_for_others_and_keep_their_order, circle)
{
    struct probe p[MANY] = {0};
    int turns = 0, n;

    for (int i = 0; i < MANY; i++)
        loop_task_post(f->l, &p[i].task, on_long_task);
    for (; p[MANY - 1].tasks == 0; turns++) {
        cr_assert_eq(loop_next_timeout_ms(f->l), 0);
        n = loop_poll(f->l, 0);
        cr_assert_eq(n, 1, "%d at once", n);
        for (int i = 1; i < MANY; i++)
            cr_assert(p[i].tasks <= p[i - 1].tasks);
    }
    cr_assert(turns > 1);
    cr_assert_eq(loop_next_timeout_ms(f->l), -1);
}

TEST_WITH(loop, long_callbacks_leave_room_for_others_and_none_is_lost, circle)
{
    struct probe p[MANY] = {0};
    int fd[MANY][2], turns = 0, calls = 0;
    struct probe *last = NULL;

    for (int i = 0; i < MANY; i++) {
        pair(fd[i]);
        cr_assert_eq(loop_add(f->l, &p[i].io, fd[i][0], LOOP_IN, on_long_io, NULL), 0);
        cr_assert_eq(write(fd[i][1], "x", 1), 1);
    }
    for (; calls < MANY - 1; turns++) {
        int n;

        n = loop_poll(f->l, 0);
        cr_assert_eq(n, 1, "%d at once", n);
        calls += n;
        for (int i = 0; i < MANY && !last; i++) {
            if (p[i].calls == 0)
                last = &p[i];
        }
        if (last && turns == 0)
            loop_del(f->l, &last->io); /* its event was fetched, and must not be delivered */
    }
    cr_assert(turns > 1);
    cr_assert_eq(last->calls, 0);
    cr_assert_eq(loop_poll(f->l, 0), 0);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(p[i].calls, &p[i] != last);
        close(fd[i][0]);
        close(fd[i][1]);
    }
}

static void on_long_timer(struct loop_timer *t)
{
    spin();
    on_timer(t);
}

TEST_WITH(loop, long_timers_leave_room_for_others_and_all_fire, circle)
{
    struct probe p[MANY] = {0};
    int turns = 0;

    for (int i = 0; i < MANY; i++)
        loop_timer_set(f->l, &p[i].timer, 1, on_long_timer);
    while (clock_ms() <= p[MANY - 1].timer.due_ms)
        ;
    for (; loop_next_timeout_ms(f->l) == 0; turns++)
        cr_assert_eq(loop_poll(f->l, -1), 1, "one at once");
    cr_assert_eq(turns, MANY);
    for (int i = 0; i < MANY; i++)
        cr_assert_eq(p[i].timers, 1);
}

/* Callbacks that are always ready: each kind runs in every third iteration. */
TEST_WITH(loop, long_callbacks_of_one_kind_leave_the_next_turn_to_the_others, circle)
{
    enum { ROUNDS = 4 };

    int fd[2];

    pair(fd);
    cr_assert_eq(write(fd[1], "x", 1), 1);
    cr_assert_eq(loop_add(f->l, &f->p.io, fd[0], LOOP_IN | LOOP_LEVEL, on_long_io, NULL), 0);
    for (int i = 1; i <= ROUNDS; i++) {
        loop_timer_set(f->l, &f->p.timer, 1, on_long_timer);
        loop_task_post(f->l, &f->p.task, on_long_task);
        while (clock_ms() <= f->p.timer.due_ms)
            ;
        for (int kinds = 0; kinds < 3; kinds++)
            cr_assert_eq(loop_poll(f->l, 0), 1, "one at once");
        cr_assert_eq(f->p.calls, i);
        cr_assert_eq(f->p.timers, i);
        cr_assert_eq(f->p.tasks, i);
    }
    close(fd[0]);
    close(fd[1]);
}

/* --- tasks behind the others --- */

enum { TURNS = 20 };

static void on_behind(struct loop_task *t)
{
    struct probe *p = CONTAINER_OF(t, struct probe, task);

    spin();
    p->tasks++;
    loop_task_post_behind(p->loop, t, on_behind);
}

/* A short task runs in the same iteration, however much long work was posted before, or in the next
 * one if that begins with long work. */
TEST_WITH(loop, a_short_task_does_not_wait_for_all_long_work, circle)
{
    struct probe parts[MANY], quick = {.loop = f->l};
    int done = 0;

    for (int i = 0; i < MANY; i++) {
        parts[i] = (struct probe){.loop = f->l};
        loop_task_post_behind(f->l, &parts[i].task, on_behind);
    }
    for (int i = 0; i < TURNS; i++) {
        loop_task_post(f->l, &quick.task, on_task);
        (void)loop_poll(f->l, 0);
        (void)loop_poll(f->l, 0);
        cr_assert_eq(quick.tasks, i + 1);
    }
    for (int i = 0; i < MANY; i++)
        done += parts[i].tasks;
    cr_assert_geq(done, TURNS, "long work was done %d times in %d turns", done, 2 * TURNS);
    for (int i = 0; i < MANY; i++)
        loop_task_cancel(f->l, &parts[i].task);
    cr_assert_eq(loop_next_timeout_ms(f->l), -1);
}

/* Long work also runs in the end. */
TEST_WITH(loop, long_work_has_its_turns_beside_tasks_that_never_end, circle)
{
    struct probe part = {.loop = f->l}, others[MANY];

    for (int i = 0; i < MANY; i++) {
        others[i] = (struct probe){.loop = f->l, .again_now = true};
        loop_task_post(f->l, &others[i].task, on_long_task);
    }
    loop_task_post_behind(f->l, &part.task, on_behind);
    for (int i = 0; i < 3 * TURNS; i++) {
        for (int k = 0; k < MANY; k++)
            loop_task_post(f->l, &others[k].task, on_long_task);
        (void)loop_poll(f->l, 0);
    }
    cr_assert_geq(part.tasks, TURNS, "%d of %d turns", part.tasks, 3 * TURNS);
}

/* --- tasks at the end of an iteration --- */

/* Posts the task of `other` for the end. */
static void on_posting_task(struct loop_task *t)
{
    struct probe *p = CONTAINER_OF(t, struct probe, task);

    loop_task_post_last(p->loop, &p->other->task, on_task);
    on_task(t);
}

TEST_WITH(loop, what_a_task_posts_for_the_end_runs_in_the_same_turn, circle)
{
    struct probe end = {.loop = f->l}, first = {.loop = f->l, .other = &end}, behind = first;

    loop_task_post(f->l, &first.task, on_posting_task);
    loop_task_post_behind(f->l, &behind.task, on_posting_task);
    cr_assert_eq(loop_poll(f->l, -1), 3);
    cr_assert_eq(end.tasks, 1);
    loop_task_post_last(f->l, &end.task, on_task);
    cr_assert_eq(loop_next_timeout_ms(f->l), 0);
    cr_assert_eq(loop_poll(f->l, -1), 1);
    cr_assert_eq(end.tasks, 2);
}

TEST_WITH(loop, the_end_of_a_turn_that_took_long_begins_the_next, circle)
{
    struct probe end = {.loop = f->l}, first = {.loop = f->l};

    loop_task_post_last(f->l, &end.task, on_task);
    loop_task_post(f->l, &first.task, on_long_task);
    cr_assert_eq(loop_poll(f->l, 0), 1);
    cr_assert_eq(end.tasks, 0);
    loop_task_post(f->l, &first.task, on_long_task);
    cr_assert_eq(loop_poll(f->l, 0), 2);
    cr_assert_eq(end.tasks, 1);
}
