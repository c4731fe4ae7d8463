/* Sends requests to the other workers of the node over their sockets (sibling.h). Clients are made
 * on first use and kept. A request carries the keys of the request for which it is sent, so that
 * the other worker checks them as if the client had asked it directly. The board lists the workers
 * that serve. */

#include "worker/plane/control/sibling.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/net/http_client.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/presented.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"

enum { ANSWER_TIMEOUT_MS = 3600 * 1000 };

struct siblings {
    const struct heritage *h;
    struct loop *loop;
    struct list_head calls; /* fetches in progress */
    /* clients by worker index; NULL: not used yet */
    struct http_client *clients[BOARD_WORKERS_MAX];
};

/* Opens no client yet. */
static struct siblings *siblings_new(const struct heritage *h, struct loop *loop)
{
    struct siblings *s = mem_zalloc(sizeof(*s));

    s->h = h;
    s->loop = loop;
    return s;
}

/* Answers pending requests with an error. */
void siblings_free(struct siblings *s)
{
    struct err e = {0};

    if (!s)
        return;
    (void)err_set(&e, ERR_WORKER_UNAVAILABLE, "this worker ends");
    http_fetches_end(&s->calls, &e);
    for (size_t i = 0; i < BOARD_WORKERS_MAX; i++) {
        if (s->clients[i])
            http_client_free(s->clients[i]);
    }
    free(s);
}

/* Returns the client of that worker, or NULL if the worker has no place or no socket path. */
static struct http_client *client_of(struct siblings *s, uint32_t index, struct err *e)
{
    int at = board_place(s->h->board, index);
    uint32_t place = (uint32_t)at;
    struct http_client_options o = {.max_idle = 2};
    char path[128];
    char url[160];

    if (at < 0 ||
        heritage_socket_path(s->h->run_dir, s->h->board->worker_base + place, path, sizeof(path)))
        return NULL;
    if (!s->clients[place]) {
        (void)snprintf(url, sizeof(url), "unix:%s", path);
        if (http_client_new(s->loop, url, &o, &s->clients[place], e))
            return NULL;
    }
    return s->clients[place];
}

/* Copies the body, so that the caller may free its own at once. */
struct http_fetch *sibling_ask(struct siblings *s, uint32_t index, const struct sibling_question *q,
                               http_fetch_fn fn, void *ctx)
{
    struct err e = {0};
    struct http_client *client = client_of(s, index, &e);
    struct http_fetch *f;
    struct buf headers = {0};
    struct buf sent = {0};
    struct presented shown = {.n = 0};

    if (!client)
        return NULL;
    exchange_keys(q->from, &shown); /* the keys from any place in the request */
    for (size_t i = 0; i < shown.n; i++)
        buf_printf(&headers, "x-api-key: %.*s\r\n", (int)shown.at[i].len, shown.at[i].p);
    buf_add_str(&sent, q->body);
    f = http_fetch(client,
                   &(struct http_request){
                       .method = q->method,
                       .path = q->path,
                       .headers = buf_str(&headers),
                       .body = q->body.len > 0 ? &sent : NULL,
                       .total_timeout_ms = ANSWER_TIMEOUT_MS,
                   },
                   &s->calls, fn, ctx);
    buf_done(&headers);
    buf_done(&sent);
    return f;
}

struct sibling_round {
    const struct sibling_round_fns *fns;
    void *ctx;
    size_t waiting, failed;
    bool left;
};

/* Counts the answers. The last one ends the round. */
static void on_sibling_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct sibling_round *r = ctx;

    (void)e;
    if (status < 200 || status > 299)
        r->failed++;
    else if (!r->left)
        r->fns->one(r->ctx, body);
    if (--r->waiting > 0)
        return;
    if (!r->left)
        r->fns->all(r->ctx, r->failed);
    free(r);
}

void sibling_round_leave(struct sibling_round *r)
{
    if (r)
        r->left = true;
}

struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      const struct sibling_round_fns *fns, void *ctx)
{
    struct sibling_round *r = mem_zalloc(sizeof(*r));
    uint32_t workers[BOARD_WORKERS_MAX];
    size_t n = siblings_list(s->h, workers);

    *r = (struct sibling_round){.fns = fns, .ctx = ctx};
    for (size_t i = 0; i < n; i++) {
        if (workers[i] != s->h->index && sibling_ask(s, workers[i], q, on_sibling_answer, r))
            r->waiting++;
    }
    if (r->waiting > 0)
        return r;
    free(r);
    return NULL;
}

/* Lists workers that are ready, and this one, by index. */
size_t siblings_list(const struct heritage *h, uint32_t *ret)
{
    size_t n = 0;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (board_ready(h->board, BOARD_WORKER0 + place) || place == h->place)
            ret[n++] = board_index(h->board, place);
    }
    return n;
}

struct siblings *siblings_of(struct service *a)
{
    if (!a->siblings)
        a->siblings = siblings_new(a->heritage, a->calls.loop);
    return a->siblings;
}

bool siblings_lead(const struct heritage *h)
{
    for (unsigned place = 0; place < h->place; place++) {
        if (board_ready(h->board, BOARD_WORKER0 + place))
            return false;
    }
    return board_ready(h->board, BOARD_WORKER0 + h->place);
}
