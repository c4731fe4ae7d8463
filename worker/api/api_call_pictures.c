/* Pictures that a request names by URL: a thread fetches them (picture_fetch.c) while the request
 * waits. What came of it is counted and logged here, on the loop. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/api/picture_fetch.h"

/* Places: requests that wait or are fetched for; those beyond are sent away. */
enum { FETCHING_MAX = 256 };

static int fetch_all(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);
    int rc;

    c->pictures->tls = &tools->tls;
    c->arena.max_bytes = c->limits.memory_bytes; /* the body's length says nothing here */
    rc = picture_fetch_run(c->pictures, &c->arena, c->req, e);
    if (rc)
        arena_done(&c->arena); /* here: much memory takes long to give back */
    return rc;
}

static void tell(const struct api_call *c, const struct picture_fetch *f)
{
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};

    for (unsigned i = 0; i < FETCH_RESULTS; i++)
        if (f->counts[i] > 0)
            metrics_count_at(c->service->calls.page, METRIC_fetches, i, 0, f->counts[i]);
    if (f->why.kind)
        log_warn(&scope, "an image by URL was not fetched", LOG_T("host", f->host),
                 LOG_T("why", f->why.text));
}

/* The thread has let go. What it fetched belongs to the call from here on. */
static void end(struct api_call *c)
{
    c->service->calls.n_fetching--;
    if (c->fetching.stuck)
        return;
    tell(c, c->pictures);
    picture_fetch_free(c->pictures);
    c->pictures = NULL;
}

static void on_fetched(struct long_work *w, const struct err *e)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);

    end(c);
    c->fetched(c, e);
}

/* The client left, and the thread has let go. */
static void on_dropped(struct long_work *w)
{
    struct api_call *c = CONTAINER_OF(w, struct api_call, fetching);

    end(c);
    api_call_free(c);
}

/* The client left, and the thread never lets go. */
static void on_lost(struct long_work *w)
{
    end(CONTAINER_OF(w, struct api_call, fetching));
}

static struct picture_fetch *begin(const struct api_call *c)
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

/* A session may have as many places as are free beside it, so one alone has half of them, and who
 * has none finds one as long as there is any. */
static const char *no_place(const struct call_env *env, struct str session_id)
{
    unsigned left = FETCHING_MAX - MIN_OF(env->n_fetching, (unsigned)FETCHING_MAX);

    if (left == 0)
        return "too many requests wait for images by URL; ask again";
    return work_fetches(env, session_id) < left
               ? NULL
               : "too many requests of this session wait for images by URL; ask again";
}

void api_call_fetch(struct api_call *c, void (*done)(struct api_call *c, const struct err *e))
{
    struct call_env *env = &c->service->calls;
    struct str key = str_cstr(c->held ? c->id : c->request_id);
    const char *why = no_place(env, key);
    struct err e = {0};

    if (why) {
        metrics_count_at(env->page, METRIC_fetches, METRIC_FETCH_UNAVAILABLE, 0, 1);
        (void)err_set(&e, ERR_OVERLOADED, "%s", why);
        e.status = 503;
        done(c, &e);
        return;
    }
    env->n_fetching++;
    c->pictures = begin(c);
    c->fetched = done;
    c->fetching.run = fetch_all;
    c->fetching.done = on_fetched;
    c->fetching.drop = on_dropped;
    c->fetching.lost = on_lost;
    c->fetching.exchange = c->x;
    work_fetch(env, &c->fetching, key);
}
