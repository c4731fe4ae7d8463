/* Pictures that a request names by URL: a thread fetches them (picture_fetch.c) while the request
 * waits. The result is counted and logged here, on the loop. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "common/os/task.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/picture_fetch.h"
#include "worker/plane/call/work.h"

/* Most requests that wait for a fetch or have one; further ones are refused. */
enum { FETCHING_MAX = 256 };

static int fetch_all(void *call, void *tool, struct err *e)
{
    struct api_call *c = call;
    struct work_tools *tools = tool;
    int rc;

    c->pictures->tls = &tools->tls;
    /* the body's length does not limit the memory here */
    c->arena.max_bytes = c->limits.memory_bytes;
    rc = picture_fetch_run(c->pictures, &c->arena, c->req, e);
    if (rc)
        arena_done(&c->arena); /* done in this thread, because freeing much memory takes long */
    return rc;
}

static void log_fetch(const struct api_call *c, const struct picture_fetch *f)
{
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};

    for (unsigned i = 0; i < FETCH_RESULTS; i++)
        if (f->counts[i] > 0)
            metrics_count_at(c->service->calls.page, METRIC_fetches, i, 0, f->counts[i]);
    if (f->why.kind)
        log_warn(&scope, "an image by URL was not fetched", LOG_T("host", f->host),
                 LOG_T("why", f->why.text));
}

static struct picture_fetch *begin_fetch(const struct api_call *c)
{
    struct call_env *env = &c->service->calls;
    struct picture_fetch *f = mem_zalloc(sizeof(*f));

    f->web = env->web;
    f->media = env->media;
    if (c->held)
        f->session_id = str_cstr(c->id);
    f->rules = c->images;
    f->memory_bytes = c->limits.memory_bytes;
    f->sum = &env->fetch_bytes;
    f->limit_us = env->fetch_timeout_ms * 1000;
    f->until_us = clock_us() + f->limit_us;
    if (env->web_ca_file)
        f->ca_file = mem_strndup(env->web_ca_file, strlen(env->web_ca_file));
    return f;
}

/* Returns why the session gets no slot for a fetch; NULL: it gets one. A session may have as many
 * slots as are free, so a single session has at most half of them, and a session without a slot
 * gets one while any is free. */
static const char *why_no_slot(const struct call_env *env, struct str session_id)
{
    unsigned left = FETCHING_MAX - MIN_OF(env->n_fetching, (unsigned)FETCHING_MAX);

    if (left == 0)
        return "too many requests wait for images by URL; ask again";
    return helpers_jobs(env->fetchers, session_id) < left
               ? NULL
               : "too many requests of this session wait for images by URL; ask again";
}

/* Runs on the loop. If the thread hangs, api_call_on_lost releases the slot. */
MAY_PAUSE static int fetch_pictures(struct api_call *c, struct str lane, struct err *e)
{
    struct call_env *env = &c->service->calls;
    struct task_work w = {.fn = fetch_all, .ctx = c, .lane = lane, .pool = env->fetchers};
    int rc;

    env->n_fetching++;
    c->pictures = begin_fetch(c);
    rc = api_call_offload(c, &w, e);
    env->n_fetching--;
    log_fetch(c, c->pictures);
    picture_fetch_free(c->pictures);
    c->pictures = NULL;
    return rc;
}

int api_call_fetch(struct api_call *c, struct err *e)
{
    struct call_env *env = &c->service->calls;
    struct str lane = str_cstr(c->held ? c->id : c->request_id);
    const char *why = why_no_slot(env, lane);

    if (!why)
        return fetch_pictures(c, lane, e);
    metrics_count_at(env->page, METRIC_fetches, METRIC_FETCH_UNAVAILABLE, 0, 1);
    (void)err_set(e, ERR_OVERLOADED, "%s", why);
    e->status = 503;
    return -1;
}
