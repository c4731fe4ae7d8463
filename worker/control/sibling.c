#include "worker/control/sibling.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http_client.h"
#include "common/proc/presented.h"

enum { ANSWER_MAX = 64 << 20, ANSWER_TIMEOUT_MS = 3600 * 1000 };

struct sibling_call {
    struct siblings *all;
    struct sibling_call *prev, *next; /* in all->calls */
    struct http_call *call;
    sibling_fn fn;
    void *ctx;
    int status;
    struct buf body;
};

struct siblings {
    const struct heritage *h;
    struct loop *loop;
    struct sibling_call *calls;                     /* those that run */
    struct http_client *clients[BOARD_WORKERS_MAX]; /* by place; NULL: not used yet */
};

struct siblings *siblings_new(const struct heritage *h, struct loop *loop)
{
    struct siblings *s = mem_zalloc(sizeof(*s));

    s->h = h;
    s->loop = loop;
    return s;
}

static void call_free(struct sibling_call *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        c->all->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    buf_done(&c->body);
    free(c);
}

static void call_end(struct sibling_call *c, int status, const struct err *e)
{
    c->fn(c->ctx, status, buf_str(&c->body), e);
    call_free(c);
}

void siblings_free(struct siblings *s)
{
    struct err e = {0};

    if (!s)
        return;
    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "this worker ends");
    while (s->calls) {
        /* call_end took the last one off the list. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        http_call_cancel(s->calls->call);
        call_end(s->calls, 0, &e);
    }
    for (size_t i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (s->clients[i])
            http_client_free(s->clients[i]);
    }
    free(s);
}

static void on_head(void *ctx, const struct http1_head *h)
{
    struct sibling_call *c = ctx;

    c->status = h->status;
}

static void on_body(void *ctx, struct str bytes)
{
    struct sibling_call *c = ctx;
    struct err e = {0};

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
    struct sibling_call *c = ctx;
    struct err none = {0};

    call_end(c, c->status, &none);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)began;
    call_end(ctx, 0, e);
}

static const struct http_events events = {on_head, on_body, on_done, on_failed};

static struct http_client *client_of(struct siblings *s, uint32_t index, struct err *e)
{
    uint32_t place = index - s->h->board->worker_base;
    struct http_client_options o = {.max_idle = 2};
    char path[128];
    char url[160];

    if (place >= BOARD_WORKERS_MAX ||
        heritage_socket_path(s->h->run_dir, index, path, sizeof(path)))
        return NULL;
    if (!s->clients[place]) {
        (void)snprintf(url, sizeof(url), "unix:%s", path);
        if (http_client_new(s->loop, url, &o, &s->clients[place], e))
            return NULL;
    }
    return s->clients[place];
}

struct sibling_call *sibling_ask(struct siblings *s, uint32_t index,
                                 const struct sibling_question *q, sibling_fn fn, void *ctx)
{
    struct err e = {0};
    struct http_client *client = client_of(s, index, &e);
    struct sibling_call *c;
    struct buf headers = {0};
    struct buf sent = {0};
    struct presented shown = {.n = 0};

    if (!client)
        return NULL;
    c = mem_zalloc(sizeof(*c));
    *c = (struct sibling_call){.all = s, .next = s->calls, .fn = fn, .ctx = ctx};
    if (s->calls)
        s->calls->prev = c;
    s->calls = c;
    exchange_keys(q->from, &shown); /* wherever they stood */
    for (size_t i = 0; i < shown.n; i++)
        buf_printf(&headers, "x-api-key: %.*s\r\n", (int)shown.at[i].len, shown.at[i].p);
    buf_add_str(&sent, q->body);
    c->call = http_client_start(client,
                                &(struct http_request){
                                    .method = q->method,
                                    .path = q->path,
                                    .headers = buf_str(&headers),
                                    .body = q->body.len > 0 ? &sent : NULL,
                                    .total_timeout_ms = ANSWER_TIMEOUT_MS,
                                },
                                &events, c);
    buf_done(&headers);
    buf_done(&sent);
    return c;
}

void sibling_cancel(struct sibling_call *c)
{
    if (!c)
        return;
    http_call_cancel(c->call);
    call_free(c);
}

struct sibling_round {
    const struct sibling_round_fns *fns;
    void *ctx;
    size_t waiting, failed;
};

static void on_one(void *ctx, int status, struct str body, const struct err *e)
{
    struct sibling_round *r = ctx;

    (void)e;
    if (status < 200 || status > 299)
        r->failed++;
    else
        r->fns->one(r->ctx, body);
    if (--r->waiting > 0)
        return;
    r->fns->all(r->ctx, r->failed);
    free(r);
}

struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      const struct sibling_round_fns *fns, void *ctx)
{
    struct sibling_round *r = mem_zalloc(sizeof(*r));
    uint32_t workers[BOARD_WORKERS_MAX];
    size_t n = siblings_list(s->h, workers);

    *r = (struct sibling_round){.fns = fns, .ctx = ctx};
    for (size_t i = 0; i < n; i++) {
        if (workers[i] != s->h->index && sibling_ask(s, workers[i], q, on_one, r))
            r->waiting++;
    }
    if (r->waiting > 0)
        return r;
    free(r);
    return NULL;
}

size_t siblings_list(const struct heritage *h, uint32_t ret[BOARD_WORKERS_MAX])
{
    size_t n = 0;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (board_ready(h->board, BOARD_WORKER0 + place) || place == h->place)
            ret[n++] = h->board->worker_base + place;
    }
    return n;
}

struct siblings *siblings_of(struct service *a)
{
    if (!a->siblings)
        a->siblings = siblings_new(a->heritage, a->calls.loop);
    return a->siblings;
}
