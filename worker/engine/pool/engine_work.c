/* Runs work of an adapter in a task that waits for a helper thread (engine_work.h). */
#include "worker/engine/pool/engine_work.h"

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/os/task.h"

static int run(void *ctx, void *tool, struct err *e)
{
    struct engine_work *w = ctx;

    (void)tool;
    (void)e;
    w->run(w);
    return 0;
}

static void on_lost(void *ctx)
{
    struct engine_work *w = ctx;

    log_error(NULL, "an engine's work does not end, its thread is given up");
    if (!w->dropped)
        w->done(w, ENGINE_WORK_STUCK);
}

/* If the worker ends, the owner still drops the work. */
static void run_work(void *ctx)
{
    struct engine_work *w = ctx;
    struct task_work job = {.fn = run, .ctx = w, .lane = w->lane, .is_long = w->is_long};
    struct err e = {0};
    int rc;

    w->task = task_running;
    task_on_lost(on_lost, w);
    rc = task_offload(&job, &e);
    w->task = NULL;
    if (w->dropped)
        w->drop(w);
    else if (e.kind != ERR_CANCELLED)
        w->done(w, rc ? ENGINE_WORK_FAILED : ENGINE_WORK_DONE);
}

void engine_work_begin(struct engine_work *w, struct tasks *tasks, struct str session_id)
{
    w->lane = session_id; /* borrowed: the task copies it before this returns */
    (void)task_start(tasks, session_id, run_work, w);
}

void engine_work_drop(struct engine_work *w)
{
    if (!w->task) {
        w->drop(w);
        return;
    }
    w->dropped = true;
    task_cancel(w->task);
}
