#include "worker/sink/export_help.h"

#include "common/base/cancel.h"
#include "common/os/task.h"
#include "worker/export/build/export.h"
#include "worker/plane/call/work.h"

/* Runs on a helper thread. */
static int run_work(void *export, void *tool, struct err *e)
{
    const struct work_tools *tools = tool;

    export_run_work(export, tools->scratch);
    return cancel_wanted() ? cancel_fail(e) : 0;
}

int export_help(struct export *x, struct str lane, struct err *e)
{
    struct task_work w = {
        .fn = run_work, .ctx = x, .lane = lane, .is_long = export_work_is_long(x)};

    return task_offload(&w, e);
}
