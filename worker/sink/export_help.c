/* The long work of exports, as work of helpers (export_help.h). */
#include "worker/sink/export_help.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "common/os/task.h"
#include "worker/call/work.h"
#include "worker/export/export.h"

struct export_help {
    struct long_work work;
    struct export *export;
    const struct export_help_events *events;
    void *ctx;
};

/* In a helper. */
static int do_work(void *export, void *tool, struct err *e)
{
    const struct work_tools *tools = tool;

    export_work(export, tools->scratch, helpers_step);
    return cancel_wanted() ? cancel_fail(e) : 0;
}

static int run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    return do_work(CONTAINER_OF(w, struct export_help, work)->export, tools, e);
}

int export_help_await(struct export *x, struct str lane, struct err *e)
{
    struct task_work w = {.fn = do_work, .ctx = x, .lane = lane, .is_long = export_work_is_long(x)};

    return task_offload(&w, e);
}

static void on_done(struct long_work *w, const struct err *e)
{
    struct export_help *h = CONTAINER_OF(w, struct export_help, work);

    h->events->done(h->ctx, e, w->stuck);
    if (!w->stuck) /* e may be its own */
        free(h);
}

static void on_dropped(struct long_work *w)
{
    struct export_help *h = CONTAINER_OF(w, struct export_help, work);

    h->events->left(h->ctx);
    free(h);
}

struct export_help *export_help_begin(struct call_env *env, struct export *x, struct str session_id,
                                      const struct export_help_events *events, void *ctx)
{
    struct export_help *h = mem_zalloc(sizeof(*h));
    struct err e = {0};

    *h = (struct export_help){.work = {.run = run,
                                       .done = on_done,
                                       .drop = on_dropped,
                                       .is_long = export_work_is_long(x)},
                              .export = x,
                              .events = events,
                              .ctx = ctx};
    if (work_begin(env, &h->work, session_id, false, &e) == WORK_HELPED)
        return h;
    free(h);
    return NULL;
}

void export_help_leave(struct export_help *h)
{
    work_drop(&h->work);
}
