/* Small requests with a whole answer (http_fetch.h): gathers the body and calls back once, with the
 * status, or with 0 and the reason. Fetches are in a list of their owner, which can end all of them
 * together. */

#include "common/net/http_fetch.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"

struct http_fetch {
    struct http_call *call; /* NULL: it is refused, and `later` reports it */
    struct loop *loop;      /* loop of a refused fetch */
    struct loop_task later;
    struct err refused;
    struct list_item item; /* in the caller's list */
    http_fetch_fn fn;
    void *ctx;
    int status;
    struct buf body;
};

static void fetch_over(struct http_fetch *f, int status, const struct err *e)
{
    list_remove(&f->item);
    f->fn(f->ctx, status, buf_str(&f->body), e);
    buf_done(&f->body);
    free(f);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct http_fetch *)ctx)->status = h->status;
}

/* Longer than HTTP_FETCH_MAX_BYTES is a failure. */
static void on_body(void *ctx, struct str bytes)
{
    struct http_fetch *f = ctx;
    struct err e;

    if (f->body.len + bytes.len <= HTTP_FETCH_MAX_BYTES) {
        buf_add_str(&f->body, bytes);
        return;
    }
    http_call_cancel(f->call);
    (void)err_set(&e, ERR_INTERNAL, "the answer is longer than %d bytes", HTTP_FETCH_MAX_BYTES);
    fetch_over(f, 0, &e);
}

static void on_done(void *ctx)
{
    struct http_fetch *f = ctx;
    struct err none = {0};

    fetch_over(f, f->status, &none);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    fetch_over(ctx, 0, e);
}

static void on_refused(struct loop_task *t)
{
    struct http_fetch *f = CONTAINER_OF(t, struct http_fetch, later);

    fetch_over(f, 0, &f->refused);
}

/* Makes a fetch in the owner's list, if there is one. */
static struct http_fetch *fetch_new(struct list_head *among, http_fetch_fn fn, void *ctx)
{
    struct http_fetch *f = mem_zalloc(sizeof(*f));

    f->fn = fn;
    f->ctx = ctx;
    if (among)
        list_append(among, &f->item);
    return f;
}

/* The callback is called later, exactly once unless the fetch is cancelled. */
struct http_fetch *http_fetch(struct http_client *c, const struct http_request *r,
                              struct list_head *among, http_fetch_fn fn, void *ctx)
{
    static const struct http_events events = {on_head, on_body, on_done, on_failed};
    struct http_fetch *f = fetch_new(among, fn, ctx);

    f->call = http_client_start(c, r, &events, f);
    return f;
}

/* Makes a fetch without a call, whose refusal is reported later like any answer. */
struct http_fetch *http_fetch_refused(struct loop *l, const struct err *why,
                                      struct list_head *among, http_fetch_fn fn, void *ctx)
{
    struct http_fetch *f = fetch_new(among, fn, ctx);

    f->loop = l;
    f->refused = *why;
    loop_task_post(l, &f->later, on_refused);
    return f;
}

/* Stops the call or the task that would end the fetch. */
static void fetch_stop(struct http_fetch *f)
{
    if (f->call)
        http_call_cancel(f->call);
    else
        loop_task_cancel(f->loop, &f->later);
}

void http_fetch_cancel(struct http_fetch *f)
{
    if (!f)
        return;
    fetch_stop(f);
    list_remove(&f->item);
    buf_done(&f->body);
    free(f);
}

void http_fetches_end(struct list_head *among, const struct err *why)
{
    struct http_fetch *f;

    /* Each leaves the list; its callback may cancel others.
     * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    while ((f = LIST_FIRST_OF(among, struct http_fetch, item))) {
        if (!why) {
            http_fetch_cancel(f);
            continue;
        }
        fetch_stop(f);
        fetch_over(f, 0, why);
    }
}
