#include "worker/call/work.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/model/model.h"
#include "worker/tokens/tokenizer.h"

enum { NICE = 5 };

/* --- in a helper --- */

static void *tools_new(void *ctx)
{
    const struct call_env *env = ctx;
    struct work_tools *tools = mem_zalloc(sizeof(*tools));

    tools->scratch = model_scratch_new(env->model);
    tools->encoder = encoder_new(model_tokenizer(env->model));
    return tools;
}

static void tools_free(void *p)
{
    struct work_tools *tools = p;

    model_scratch_free(tools->scratch);
    encoder_free(tools->encoder);
    free(tools);
}

static void on_run(struct helper_job *j, void *tool)
{
    struct long_work *w = CONTAINER_OF(j, struct long_work, job);

    w->rc = w->run(w, tool, &w->err);
}

/* --- on the loop --- */

static void count(const struct long_work *w, enum helper_end end)
{
    struct metrics_page *page = w->env->page;

    if (w->job.began_us == 0)
        return;
    metrics_observe_us(page, METRIC_helper_wait, w->job.began_us - w->job.pushed_us);
    metrics_observe_us(page, METRIC_helper_work, w->job.ended_us - w->job.began_us);
    if (end == HELPER_STUCK)
        metrics_count(page, METRIC_helper_stuck, 1);
}

static void on_done(struct helper_job *j, enum helper_end end)
{
    struct long_work *w = CONTAINER_OF(j, struct long_work, job);

    w->helped = false;
    w->stuck = end == HELPER_STUCK;
    count(w, end);
    if (w->stuck)
        log_error(NULL, "a request's work does not end, its thread is given up",
                  LOG_U("body_hash", w->body_hash));
    if (w->dropped) {
        list_remove(&w->item);
        if (!w->stuck)
            w->drop(w);
        return;
    }
    if (w->stuck) {
        struct err e = {0};

        (void)err_set(&e, ERR_INTERNAL, "the request took too long to prepare and was given up");
        w->done(w, &e);
        return;
    }
    if (end == HELPER_CANCELLED) { /* not by its owner: its time was over */
        w->rc = err_set(&w->err, ERR_INTERNAL, "the request took too long to prepare");
    }
    w->done(w, w->rc ? &w->err : NULL);
}

enum work_state work_begin(struct call_env *env, struct long_work *w, struct str session_id,
                           bool is_short, struct err *e)
{
    struct work_tools own = {env->scratch, env->encoder};

    w->env = env;
    if (!env->helpers || (is_short && !helpers_busy(env->helpers, session_id)))
        return w->run(w, &own, e) ? WORK_FAILED : WORK_DONE;
    w->helped = true;
    w->dropped = false;
    w->err = (struct err){0};
    w->job.run = on_run;
    w->job.done = on_done;
    helpers_push(env->helpers, &w->job, session_id);
    return WORK_HELPED;
}

void work_drop(struct long_work *w)
{
    if (w->stuck)
        return;
    if (!w->helped || !w->env->helpers) { /* none any more: the worker ends */
        w->drop(w);
        return;
    }
    w->dropped = true;
    list_prepend(&w->env->dropped_work, &w->item);
    helpers_cancel(w->env->helpers, &w->job);
}

/* --- life --- */

int call_helpers_begin(struct call_env *env, unsigned threads, uint64_t limit_ms,
                       void (*on_lost)(void *env, unsigned n), struct err *e)
{
    struct helpers_options o = {
        .threads = threads,
        .limit_ms = limit_ms,
        .tool_new = tools_new,
        .tool_free = tools_free,
        .ctx = env,
        .on_lost = on_lost,
        .nice = NICE,
    };

    return threads > 0 ? helpers_new(env->loop, &o, &env->helpers, e) : 0;
}

unsigned call_helpers_end(struct call_env *env)
{
    unsigned lost = helpers_free(env->helpers);
    struct long_work *w, *next;

    env->helpers = NULL;
    if (lost > 0)
        return lost;
    LIST_EACH_SAFE(&env->dropped_work, w, next, struct long_work, item) {
        list_remove(&w->item);
        w->drop(w);
    }
    return 0;
}
