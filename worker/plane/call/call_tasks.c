/* Gives the tasks of a worker helper threads and counts what the jobs cost. */
#include "worker/plane/call/call_tasks.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "common/os/task.h"
#include "common/proc/metrics.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/work.h"

enum { STALL_US = 20000 }; /* the longest time that any request may hold the loop */

/* Logs what held the loop for too long. addr2line translates the logged `place`. */
static void on_stall(void *ctx, struct str owner, uint64_t us, const void *place)
{
    extern const char __executable_start[];
    struct metrics_page *page = ctx;

    metrics_count(page, METRIC_task_stalls, 1);
    log_warn(NULL, "a task kept the event loop too long", LOG_S("owner", owner), LOG_U("us", us),
             LOG_U("place", place ? (uintptr_t)place - (uintptr_t)__executable_start : 0));
}

void call_tasks_begin(struct call_env *env, const struct call_env_parts *parts)
{
    env->tasks = tasks_new(parts->loop);
    tasks_on_stall(env->tasks, STALL_US, on_stall, parts->page);
}

/* Counts a job that has ended, or whose thread hangs, in the metrics. */
static void call_count_job(void *env, const struct helper_job *j, bool hung)
{
    struct metrics_page *page = ((struct call_env *)env)->page;

    if (j->began_us == 0)
        return;
    metrics_observe_us(page, METRIC_helper_wait, j->began_us - j->pushed_us);
    metrics_observe_us(page, METRIC_helper_work, j->ended_us - j->began_us);
    if (hung)
        metrics_count(page, METRIC_helper_stuck, 1);
}

void call_tasks_use_helpers(struct call_env *env, const struct work_tools *own)
{
    env->own_tools = mem_zalloc(sizeof(*env->own_tools));
    *env->own_tools = *own;
    tasks_use_helpers(env->tasks,
                      &(struct task_helpers){env->helpers, env->own_tools, call_count_job, env});
}

void call_tasks_finish(struct call_env *env, bool helpers_ended)
{
    tasks_finish(env->tasks, helpers_ended);
}

void call_tasks_free(struct call_env *env)
{
    tasks_free(env->tasks);
    free(env->own_tools);
}
