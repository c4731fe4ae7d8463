/* Each piece of an engine's work has a task, which waits for the helper. */
#include "worker/plane/call/engine_helper.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/task.h"
#include "worker/engine/pool/engine_work.h"
#include "worker/plane/call/call_env.h"

struct engine_job {
    struct engine_work *of;
    struct task *task;
    bool dropped;
    size_t len;
    char lane[];
};

static int run(void *ctx, void *tool, struct err *e)
{
    struct engine_work *of = ctx;

    (void)tool;
    (void)e;
    of->run(of);
    return 0;
}

/* The thread still has the job. */
static void on_lost(void *ctx)
{
    struct engine_job *j = ctx;

    log_error(NULL, "an engine's work does not end, its thread is given up",
              LOG_S("session", str_of(j->lane, j->len)));
    if (j->dropped)
        return;
    j->of->job = NULL;
    j->of->done(j->of, ENGINE_WORK_STUCK);
}

/* If the worker ends, the owner still drops the work. */
static void run_job(void *ctx)
{
    struct engine_job *j = ctx;
    struct engine_work *of = j->of;
    struct task_work w = {
        .fn = run, .ctx = of, .lane = str_of(j->lane, j->len), .is_long = of->is_long};
    struct err e = {0};
    int rc;

    j->task = task_running;
    task_on_lost(on_lost, j);
    rc = task_offload(&w, &e);
    of->job = NULL;
    if (j->dropped)
        of->drop(of);
    else if (e.kind != ERR_CANCELLED)
        of->done(of, rc ? ENGINE_WORK_FAILED : ENGINE_WORK_DONE);
    free(j);
}

static void begin(void *ctx, struct engine_work *w, struct str session_id)
{
    struct call_env *env = ctx;
    struct engine_job *j = mem_zalloc(sizeof(*j) + session_id.len);

    j->of = w;
    j->len = session_id.len;
    if (j->len > 0)
        memcpy(j->lane, session_id.p, j->len);
    w->job = j;
    (void)task_start(env->tasks, session_id, run_job, j);
}

static void drop_work(void *ctx, struct engine_work *w)
{
    struct engine_job *j = w->job;

    (void)ctx;
    if (!j) {
        w->drop(w);
        return;
    }
    j->dropped = true;
    task_cancel(j->task);
}

const struct engine_helper call_engine_helper = {begin, drop_work};
