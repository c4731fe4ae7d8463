/* Each piece of an engine's work gets a struct long_work of its own, which is its job. */
#include "worker/call/engine_helper.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "worker/call/work.h"
#include "worker/engine/engine_work.h"

struct engine_job {
    struct long_work work;
    struct engine_work *of;
};

static int run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct engine_work *of = CONTAINER_OF(w, struct engine_job, work)->of;

    (void)tools;
    (void)e;
    of->run(of);
    return 0;
}

/* A stuck helper still has the job. */
static void done(struct long_work *w, const struct err *e)
{
    struct engine_job *j = CONTAINER_OF(w, struct engine_job, work);
    struct engine_work *of = j->of;
    bool stuck = w->stuck;

    of->job = NULL;
    if (!stuck)
        free(j);
    of->done(of, stuck ? ENGINE_WORK_STUCK : e ? ENGINE_WORK_FAILED : ENGINE_WORK_DONE);
}

static void drop(struct long_work *w)
{
    struct engine_job *j = CONTAINER_OF(w, struct engine_job, work);
    struct engine_work *of = j->of;

    free(j);
    of->drop(of);
}

static void begin(void *ctx, struct engine_work *w, struct str session_id)
{
    struct engine_job *j = mem_zalloc(sizeof(*j));
    struct err e = {0};

    j->work.run = run;
    j->work.done = done;
    j->work.drop = drop;
    j->work.is_long = w->is_long;
    j->of = w;
    w->job = j;
    if (work_begin(ctx, &j->work, session_id, false, &e) != WORK_HELPED)
        done(&j->work, NULL);
}

static void drop_work(void *ctx, struct engine_work *w)
{
    struct engine_job *j = w->job;

    (void)ctx;
    work_drop(&j->work);
}

const struct engine_helper call_engine_helper = {begin, drop_work};
