/*
 * struct task: a function with a stack of its own that runs on the loop's thread. It pauses so that
 * others run, waits for an event, or waits for a helper thread. Between two of these calls no other
 * task runs. During such a call everything may change that the task has not pinned or copied.
 *
 *     static void serve(void *ctx) { ... task_pause(&e) ... task_wait(&w, &e) ... }
 *     task_start(tasks, owner, serve, ctx);
 *
 * Outside a task (a replay, a command, a unit test) task_pause returns at once and task_offload
 * calls its function directly, so the same code serves both.
 *
 * A cancelled task continues: its next pause or wait returns -1 with ERR_CANCELLED, and the
 * function returns through its error path. ERR_CANCELLED is neither answered nor logged.
 *
 * Tasks that are ready share 250 us of each loop iteration, owner by owner. All functions are for
 * the loop's thread.
 */
#ifndef RG_OS_TASK_H
#define RG_OS_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct helper_job;
struct helpers;
struct loop;
struct task;
struct tasks;

MAY_PAUSE typedef void (*task_fn)(void *ctx);

/* The tasks of one loop. */
struct tasks *tasks_new(struct loop *l);

/* Frees the pool of stacks. Tasks that have not ended are leaked. Accepts NULL. */
void tasks_free(struct tasks *all);

/* Threads for task_offload, and the tool for work without threads (h NULL). `after` is called after
 * each work, in its thread. `on_job` is called with each job after its thread has returned or is
 * hung. */
struct task_helpers {
    struct helpers *h;
    void *own_tool;
    void (*after)(void *tool); /* or NULL */
    void (*on_job)(void *ctx, const struct helper_job *j, bool hung);
    void *ctx;
};

void tasks_use_helpers(struct tasks *all, const struct task_helpers *h);

/* Called for each run of a task that held the loop longer than limit_us. `place` is the code
 * address of the pause that ended the run; NULL: the task has ended. */
typedef void (*task_stall_fn)(void *ctx, struct str owner, uint64_t us, const void *place);
void tasks_on_stall(struct tasks *all, uint64_t limit_us, task_stall_fn fn, void *ctx);

/* Makes each pause yield, as debug builds do by default. */
void tasks_yield_always(struct tasks *all, bool always);

/* Returns the number of tasks that have not ended. */
size_t tasks_count(const struct tasks *all);

/* Cancels all tasks and runs them to their end. Waits fail from now on, and pauses do not yield. A
 * task that waits for a thread is skipped unless the threads have ended (`helpers_ended`). Accepts
 * NULL. */
void tasks_finish(struct tasks *all, bool helpers_ended);

/* Runs fn until its first wait or its end. Tasks of one owner (copied) share one lane. Returns NULL
 * if the task has ended already. */
struct task *task_start(struct tasks *all, struct str owner, task_fn fn, void *ctx);

/* The running task, or NULL. */
extern _Thread_local struct task *task_running;

MAY_PAUSE int task_pause_slow(struct err *e);

/* Yields to other tasks if the time of this iteration is used up. Returns -1 if the task is
 * cancelled. */
MAY_PAUSE static inline int task_pause(struct err *e)
{
    return RG_UNLIKELY(task_running != NULL) ? task_pause_slow(e) : 0;
}

/* Returns a number that grows each time the running task yields. If it has grown, data that was
 * looked up before may have changed. */
uint64_t task_turns(void);

/* An event that a task waits for. Zeroed by its owner. May be used again after each wait. */
struct waiter {
    struct task *task; /* waiting task, or NULL */
    bool woken;
};

/* Waits for waiter_wake, which may have come earlier. Returns -1 if the task was cancelled before.
 * Only in a task. */
MAY_PAUSE RG_MUSTCHECK int task_wait(struct waiter *w, struct err *e);

/* Makes the waiting task ready. The task runs in a later iteration, so it must check again the
 * condition that it waited for. */
void waiter_wake(struct waiter *w);

/* Calls waiter_wake. For callbacks with an opaque argument. */
void waiter_on_event(void *waiter);

/* Work for a helper thread. Jobs of one lane run in order. A long job takes several milliseconds; a
 * thread stays free for others. A short job runs at once, unless its lane has jobs. */
struct task_work {
    MAY_PAUSE int (*fn)(void *ctx, void *tool, struct err *e); /* may pause if it runs at once */
    void *ctx;
    struct str lane;
    bool is_short, is_long;
    struct helpers *pool; /* threads to use instead of those of the tasks' helpers, or NULL */
};

/* Runs the work in a helper thread and returns its result. A cancelled task returns after the
 * thread has returned. If the thread hangs, the task never runs again and task_on_lost applies. */
MAY_PAUSE RG_MUSTCHECK int task_offload(const struct task_work *w, struct err *e);

/* Sets the function that is called if the running task is lost to a hung thread. fn must not free
 * what the thread may use. */
void task_on_lost(void (*fn)(void *ctx), void *ctx);

/* Makes the next pause or wait of t return -1. */
void task_cancel(struct task *t);

/* Protects the task from cancellation until it ends. For a function that changes several things,
 * from its first change on. */
void task_shield(void);

/* +1: functions called from here may neither pause nor wait (a CHECK). -1 ends that. For callbacks
 * of others, which run on the task's stack. */
void task_atomic(int delta);

#endif
