/* Tasks (task.h) and their turns.
 *
 *   task_start -> resume_task --enter--> fn ... task_pause -> yield_to_outer --.
 *                      ^                                                       |
 *                      '--- on_turn <--- loop_task_post <--- make_ready <------'
 *
 * A ready task is in the lane of its owner, and the lane is in a ring. Each step of on_turn takes
 * the first task of the next lane, so that owners share the time. The quota keeps on_turn short. So
 * it is not posted behind, where it would wait for all others there: an engine may have thousands
 * of answers. A task returns to its resumer: the loop, or the task that started it. */
#include "common/os/task.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "common/os/loop.h"
#include "common/os/task_stack.h"

/* QUOTA_US: tasks may use this much of a loop iteration, which may take 1 ms in all. LEAST_US: a
 * new task gets at least this time, enough for short work. POOL_MAX: number of kept stacks; few
 * tasks wait at one time. */
enum { QUOTA_US = 250, LEAST_US = 100, POOL_MAX = 64 };

#ifdef NDEBUG
enum { YIELDS_ALWAYS = false };
#else
enum { YIELDS_ALWAYS = true };
#endif

struct task_lane {
    struct list_item item;  /* in the ring, while `ready` is not empty */
    struct list_head ready; /* tasks */
    size_t n;               /* tasks that have not ended */
    struct str owner;       /* name of the owner, in this block */
};

/* Kept in the pool together with its stack. */
struct task {
    struct tasks *all;
    struct task_stack *stack;
    struct task_lane *lane;
    struct list_item item;  /* in all->living */
    struct list_item ready; /* in lane->ready */
    task_fn fn;
    void *ctx;
    struct task *outer;     /* task that resumed this one; NULL: the loop */
    struct waiter *wait;    /* NULL: the task does not wait */
    struct helper_job *job; /* NULL: no thread works for the task */
    struct helpers *pool;   /* the threads that run `job` */
    uint64_t since_us, until_us, turns;
    int atomic;
    bool shielded, cancelled, ended, lost;
    void (*on_lost)(void *ctx);
    void *lost_ctx;
};

struct tasks {
    struct loop *loop;
    struct loop_task turn;
    struct list_head ring;   /* lanes with ready tasks */
    struct list_head living; /* tasks */
    struct map lanes;        /* by owner */
    size_t n;
    uint64_t turn_number, left_us; /* number of the loop iteration; rest of its quota */
    struct task_helpers helpers;
    uint64_t stall_us; /* 0: no limit */
    task_stall_fn on_stall;
    void *stall_ctx;
    bool ending, yields_always;
    struct task *pool[POOL_MAX];
    size_t n_pool;
};

_Thread_local struct task *task_running;

/* --- lanes --- */

static struct task_lane *find_lane(struct tasks *all, struct str owner)
{
    struct task_lane *l = map_get(&all->lanes, owner);

    if (l)
        return l;
    l = mem_zalloc(sizeof(*l) + owner.len);
    l->owner = str_of((char *)(l + 1), owner.len);
    if (owner.len > 0)
        memcpy(l + 1, owner.p, owner.len);
    (void)map_set(&all->lanes, l->owner, l);
    return l;
}

static void leave_lane(struct task *t)
{
    struct task_lane *l = t->lane;

    if (--l->n > 0)
        return;
    list_remove(&l->item);
    (void)map_take(&t->all->lanes, l->owner);
    free(l);
}

static void on_turn(struct loop_task *lt);

static void make_ready(struct task *t)
{
    if (list_holds(&t->ready))
        return;
    list_append(&t->lane->ready, &t->ready);
    if (!list_holds(&t->lane->item))
        list_append(&t->all->ring, &t->lane->item);
    loop_task_post(t->all->loop, &t->all->turn, on_turn);
}

static void leave_ring(struct task *t)
{
    list_remove(&t->ready);
    if (list_is_empty(&t->lane->ready))
        list_remove(&t->lane->item);
}

/* --- running --- */

static void run_function(void *ctx)
{
    struct task *t = ctx;

    t->fn(t->ctx);
    t->ended = true;
}

static void end_task(struct task *t)
{
    struct tasks *all = t->all;

    list_remove(&t->item);
    leave_ring(t);
    leave_lane(t);
    all->n--;
    if (all->n_pool < POOL_MAX) {
        all->pool[all->n_pool++] = t;
    } else {
        task_stack_free(t->stack);
        free(t);
    }
}

/* Reports the running task if it has held the loop for too long. */
static void report_stall(const struct task *t, uint64_t now_us, const void *place)
{
    const struct tasks *all = t->all;

    if (all->stall_us > 0 && now_us - t->since_us > all->stall_us)
        all->on_stall(all->stall_ctx, t->lane->owner, now_us - t->since_us, place);
}

/* Returns the time that tasks have left in this loop iteration. */
static uint64_t quota_left(struct tasks *all)
{
    uint64_t turn = loop_turns(all->loop);

    if (all->turn_number != turn) {
        all->turn_number = turn;
        all->left_us = QUOTA_US;
    }
    return all->left_us;
}

/* Resumes the task. Returns true if the task has ended, so that t is freed. */
static bool resume_task(struct task *t)
{
    struct tasks *all = t->all;
    uint64_t now_us = clock_us();

    t->outer = task_running;
    t->since_us = now_us;
    t->until_us = now_us + MAX_OF(quota_left(all), (uint64_t)LEAST_US);
    task_running = t;
    task_stack_enter(t->stack);
    task_running = t->outer;
    now_us = clock_us() - now_us;
    all->left_us -= MIN_OF(all->left_us, now_us);
    if (!t->ended)
        return false;
    report_stall(t, t->since_us + now_us, NULL);
    end_task(t);
    return true;
}

static void on_turn(struct loop_task *lt)
{
    struct tasks *all = CONTAINER_OF(lt, struct tasks, turn);
    struct task_lane *l;

    for (size_t n = all->n; n > 0 && quota_left(all) > 0; n--) {
        struct task *t;

        l = LIST_FIRST_OF(&all->ring, struct task_lane, item);
        if (!l)
            return;
        /* A lane is off the ring when it is freed, which the analyzer does not follow.
         * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        t = LIST_FIRST_OF(&l->ready, struct task, ready);
        list_remove(&l->item);
        list_remove(&t->ready);
        if (!list_is_empty(&l->ready))
            list_append(&all->ring, &l->item);
        (void)resume_task(t);
    }
    if (!list_is_empty(&all->ring))
        loop_task_post(all->loop, lt, on_turn);
}

struct task *task_start(struct tasks *all, struct str owner, task_fn fn, void *ctx)
{
    struct task *t = all->n_pool > 0 ? all->pool[--all->n_pool] : mem_zalloc(sizeof(*t));
    struct task_stack *stack = t->stack;

    *t = (struct task){.all = all, .stack = stack, .fn = fn, .ctx = ctx};
    if (!stack)
        t->stack = task_stack_new(run_function, t);
    t->lane = find_lane(all, owner);
    t->lane->n++;
    list_append(&all->living, &t->item);
    all->n++;
    return resume_task(t) ? NULL : t;
}

uint64_t task_turns(void)
{
    return task_running ? task_running->turns : 0;
}

/* --- pauses and waits --- */

/* Reports whether the next pause or wait fails. */
static bool is_cancelled(const struct task *t)
{
    return t->cancelled && !t->shielded;
}

static void yield_to_outer(struct task *t, uint64_t now_us, const void *place)
{
    CHECK(t->atomic == 0);
    report_stall(t, now_us, place);
    t->turns++;
    task_stack_leave(t->stack);
}

int task_pause_slow(struct err *e)
{
    struct task *t = task_running;
    uint64_t now_us;

    CHECK(t->atomic == 0);
    if (is_cancelled(t))
        return cancel_fail(e);
    now_us = clock_us();
    if (t->all->ending || (now_us < t->until_us && !t->all->yields_always))
        return 0;
    make_ready(t);
    yield_to_outer(t, now_us, __builtin_return_address(0));
    return is_cancelled(t) ? cancel_fail(e) : 0;
}

int task_wait(struct waiter *w, struct err *e)
{
    struct task *t = task_running;

    CHECK(t && t->atomic == 0);
    while (!w->woken && !is_cancelled(t) && !t->all->ending) {
        w->task = t;
        t->wait = w;
        yield_to_outer(t, clock_us(), __builtin_return_address(0));
        t->wait = NULL;
        w->task = NULL;
    }
    if (!w->woken)
        return cancel_fail(e);
    w->woken = false;
    return 0;
}

void waiter_wake(struct waiter *w)
{
    w->woken = true;
    if (w->task)
        make_ready(w->task);
}

void waiter_on_event(void *waiter)
{
    waiter_wake(waiter);
}

void task_cancel(struct task *t)
{
    t->cancelled = true;
    if (t->shielded || t->lost)
        return;
    /* while the loop is ending, the threads may have ended, except those that hang */
    if (t->job && !t->all->ending)
        helpers_cancel(t->pool, t->job); /* the end of the job makes the task ready */
    else if (t->wait)
        make_ready(t);
}

void task_shield(void)
{
    if (task_running)
        task_running->shielded = true;
}

void task_atomic(int delta)
{
    if (task_running)
        task_running->atomic += delta;
}

/* --- helper threads --- */

struct offload {
    struct helper_job job;
    struct task *task;
    const struct task_work *work;
    void (*after)(void *tool);
    struct err err;
    int rc;
    enum helper_end end;
    bool returned;
};

static void run_work(struct offload *o, void *tool)
{
    o->rc = o->work->fn(o->work->ctx, tool, &o->err);
    if (o->after)
        o->after(tool);
}

static void on_run(struct helper_job *j, void *tool)
{
    run_work(CONTAINER_OF(j, struct offload, job), tool);
}

static int end_work(const struct offload *o, struct err *e)
{
    if (o->rc && e)
        *e = o->err;
    return o->rc;
}

static void on_job_end(struct helper_job *j, enum helper_end end)
{
    struct offload *o = CONTAINER_OF(j, struct offload, job);
    struct task *t = o->task;
    const struct task_helpers *h = &t->all->helpers;

    if (h->on_job && !o->work->pool)
        h->on_job(h->ctx, j, end == HELPER_STUCK);
    if (end == HELPER_STUCK) { /* the thread may write to the task's stack from now on */
        t->lost = true;
        if (t->on_lost)
            t->on_lost(t->lost_ctx);
        return;
    }
    o->end = end;
    o->returned = true;
    t->job = NULL;
    make_ready(t);
}

int task_offload(const struct task_work *w, struct err *e)
{
    struct task *t = task_running;
    struct offload o = {
        .job = {.run = on_run, .done = on_job_end, .is_long = w->is_long}, .task = t, .work = w};

    if (!t)
        return w->fn(w->ctx, NULL, e);
    o.after = t->all->helpers.after;
    t->pool = w->pool ? w->pool : t->all->helpers.h;
    if (!t->pool || (w->is_short && !helpers_busy(t->pool, w->lane))) {
        run_work(&o, t->all->helpers.own_tool);
        return end_work(&o, e);
    }
    if (is_cancelled(t) || t->all->ending)
        return cancel_fail(e);
    t->job = &o.job;
    helpers_push(t->pool, &o.job, w->lane);
    yield_to_outer(t, clock_us(), __builtin_return_address(0));
    if (!o.returned || (o.end == HELPER_CANCELLED && t->cancelled))
        return cancel_fail(e);
    if (o.end == HELPER_CANCELLED)
        return err_set(e, ERR_INTERNAL, "the request took too long to prepare");
    return end_work(&o, e);
}

void task_on_lost(void (*fn)(void *ctx), void *ctx)
{
    task_running->on_lost = fn;
    task_running->lost_ctx = ctx;
}

/* --- life --- */

/* Describes the running task for the last words. Called in a signal handler. */
static bool describe_running(struct task_overflow *ret)
{
    const struct task *t = task_running;

    if (!t)
        return false;
    *ret = (struct task_overflow){t->stack, t->lane->owner.p, t->lane->owner.len};
    return true;
}

struct tasks *tasks_new(struct loop *l)
{
    struct tasks *all = mem_zalloc(sizeof(*all));

    all->loop = l;
    all->left_us = QUOTA_US;
    all->yields_always = YIELDS_ALWAYS;
    task_stack_watch(describe_running);
    return all;
}

void tasks_use_helpers(struct tasks *all, const struct task_helpers *h)
{
    all->helpers = *h;
}

void tasks_on_stall(struct tasks *all, uint64_t limit_us, task_stall_fn fn, void *ctx)
{
    all->stall_us = limit_us;
    all->on_stall = fn;
    all->stall_ctx = ctx;
}

void tasks_yield_always(struct tasks *all, bool always)
{
    all->yields_always = always;
}

size_t tasks_count(const struct tasks *all)
{
    return all->n;
}

void tasks_finish(struct tasks *all, bool helpers_ended)
{
    struct task *t, *next;

    if (!all)
        return;
    all->ending = true;
    if (helpers_ended)
        all->helpers.h = NULL;
    LIST_EACH(&all->living, t, struct task, item) {
        t->cancelled = true;
        if (helpers_ended) /* the tasks end one by one, because a task may cancel a second one */
            t->job = NULL;
    }
    LIST_EACH_SAFE(&all->living, t, next, struct task, item) {
        if (t->lost || t->job)
            continue;
        leave_ring(t);
        CHECK(resume_task(t)); /* the task neither pauses nor waits any longer, so it ends */
    }
}

void tasks_free(struct tasks *all)
{
    if (!all)
        return;
    loop_task_cancel(all->loop, &all->turn);
    while (all->n_pool > 0) {
        struct task *t = all->pool[--all->n_pool];

        task_stack_free(t->stack);
        free(t);
    }
    map_done(&all->lanes);
    free(all);
}
