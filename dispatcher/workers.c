#include "dispatcher/workers.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/net/http_client.h"
#include "common/proc/ids.h"

enum { ANSWER_MAX = 64 << 20, ANSWER_TIMEOUT_MS = 120 * 1000, KEY_MAX = 256 };

struct worker_call {
    struct workers *all;
    struct http_call *call; /* NULL: it could not begin; `later` tells */
    worker_fn fn;
    void *ctx;
    int status;
    struct buf body;
    struct err failed;
    struct loop_task later;
    struct list_item entry;
};

struct workers {
    const struct heritage *h;
    struct loop *loop;
    char key[KEY_MAX];
    unsigned turn;
    struct http_client *clients[BOARD_WORKERS_MAX]; /* by place; NULL: not used yet */
    struct list_head calls;
};

struct workers *workers_new(const struct heritage *h, struct loop *loop)
{
    struct workers *w = mem_zalloc(sizeof(*w));

    w->h = h;
    w->loop = loop;
    return w;
}

void workers_key(struct workers *w, const char *key)
{
    (void)snprintf(w->key, sizeof(w->key), "%s", key);
}

static void call_free(struct worker_call *c)
{
    list_remove(&c->entry);
    loop_task_cancel(c->all->loop, &c->later);
    buf_done(&c->body);
    free(c);
}

void worker_cancel(struct worker_call *c)
{
    if (!c)
        return;
    if (c->call)
        http_call_cancel(c->call);
    call_free(c);
}

void workers_free(struct workers *w)
{
    struct worker_call *c, *next;

    if (!w)
        return;
    LIST_EACH_SAFE(&w->calls, c, next, struct worker_call, entry)
        worker_cancel(c);
    for (size_t i = 0; i < BOARD_WORKERS_MAX; i++)
        if (w->clients[i])
            http_client_free(w->clients[i]);
    free(w);
}

static void call_end(struct worker_call *c, int status, const struct err *e)
{
    c->fn(c->ctx, status, buf_str(&c->body), e);
    call_free(c);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    ((struct worker_call *)ctx)->status = h->status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct worker_call *c = ctx;
    struct err e;

    if (c->body.len + bytes.len <= ANSWER_MAX) {
        buf_add_str(&c->body, bytes);
        return;
    }
    http_call_cancel(c->call);
    (void)err_set(&e, ERR_INTERNAL, "a worker's answer is too long");
    call_end(c, 0, &e);
}

static void on_done(void *ctx)
{
    struct worker_call *c = ctx;
    struct err none = {0};

    call_end(c, c->status, &none);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    call_end(ctx, 0, e);
}

static const struct http_events events = {on_head, on_body, on_done, on_failed};

static void on_later(struct loop_task *t)
{
    struct worker_call *c = CONTAINER_OF(t, struct worker_call, later);

    call_end(c, 0, &c->failed);
}

/* The place that serves the session's index (adoption followed), or the next one that serves. */
static int place_of(struct workers *w, struct str id, struct err *e)
{
    uint32_t index;

    if (id.p && ids_parse(id, &index) == 0 && index >= w->h->board->worker_base &&
        index - w->h->board->worker_base < BOARD_WORKERS_MAX)
        return (int)(index - w->h->board->worker_base);
    for (unsigned i = 0; !id.p && i < BOARD_WORKERS_MAX; i++) {
        unsigned place = w->turn++ % BOARD_WORKERS_MAX;

        if (board_ready(w->h->board, BOARD_WORKER0 + place))
            return (int)place;
    }
    return err_set(e, ERR_WORKER_UNAVAILABLE, "no worker serves the session");
}

static struct http_client *client_of(struct workers *w, struct str id, struct err *e)
{
    struct http_client_options o = {.max_idle = 64};
    char path[128], url[160];
    int place = place_of(w, id, e);

    if (place < 0)
        return NULL;
    if (w->clients[place])
        return w->clients[place];
    if (heritage_socket_path(w->h->run_dir, w->h->board->worker_base + (uint32_t)place, path,
                             sizeof(path))) {
        (void)err_set(e, ERR_CONFIG, "the run folder's path is too long");
        return NULL;
    }
    (void)snprintf(url, sizeof(url), "unix:%s", path);
    if (http_client_new(w->loop, url, &o, &w->clients[place], e))
        return NULL;
    return w->clients[place];
}

/* A request has so many parts. NOLINTNEXTLINE(readability-function-size) */
struct worker_call *worker_call(struct workers *w, struct str id, const char *method,
                                struct str path, struct str body, worker_fn fn, void *ctx)
{
    struct worker_call *c = mem_zalloc(sizeof(*c));
    struct http_client *client = client_of(w, id, &c->failed);
    struct buf headers = {0}, sent = {0};

    *c = (struct worker_call){.all = w, .fn = fn, .ctx = ctx, .failed = c->failed};
    list_append(&w->calls, &c->entry);
    if (!client) {
        loop_task_post(w->loop, &c->later, on_later);
        return c;
    }
    if (w->key[0])
        buf_printf(&headers, "Authorization: Bearer %s\r\n", w->key);
    buf_add_str(&sent, body);
    c->call = http_client_start(client,
                                &(struct http_request){
                                    .method = method,
                                    .path = path,
                                    .headers = buf_str(&headers),
                                    .body = sent.len > 0 ? &sent : NULL,
                                    .total_timeout_ms = ANSWER_TIMEOUT_MS,
                                },
                                &events, c);
    buf_done(&headers);
    buf_done(&sent);
    return c;
}
