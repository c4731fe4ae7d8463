/*
 * One HTTP client for each worker place, made when the place is first called and kept. A session's
 * call goes to the place of its id. If a place was removed by scaling, its adopter serves the
 * socket, so the path is the same. Calls without a session go to the ready workers in turn. A call
 * that cannot be made still ends through its callback, with the error.
 */
#include "dispatcher/workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/http_client.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"

enum { ANSWER_TIMEOUT_MS = 120 * 1000, SESSION_TIMEOUT_MS = 10 * 1000, KEY_MAX = 256 };

struct workers {
    const struct heritage *h;
    struct loop *loop;
    char key[KEY_MAX];
    unsigned turn;
    struct http_client *clients[BOARD_WORKERS_MAX]; /* by place; NULL: not called yet */
    bool broken[BOARD_WORKERS_MAX];                 /* by place: no client can be made */
    char fault[320];
    unsigned fault_place;
    struct http_fetch *retry; /* the call of workers_retry, or NULL */
    struct list_head calls;   /* pending fetches */
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

void workers_free(struct workers *w)
{
    if (!w)
        return;
    http_fetches_end(&w->calls, NULL);
    for (size_t i = 0; i < BOARD_WORKERS_MAX; i++)
        if (w->clients[i])
            http_client_free(w->clients[i]);
    free(w);
}

/* Returns the place that serves the session's index (adoption followed), or the next place that
 * serves. */
static int choose_worker(struct workers *w, struct str id, struct err *e)
{
    uint32_t index;
    int at = id.p && ids_parse(id, &index) == 0 ? board_place(w->h->board, index) : -1;

    if (at >= 0)
        return at;
    for (unsigned i = 0; !id.p && i < BOARD_WORKERS_MAX; i++) {
        unsigned place = w->turn++ % BOARD_WORKERS_MAX;

        if (board_ready(w->h->board, BOARD_WORKER0 + place) &&
            !board_is_foreign(w->h->board, place))
            return (int)place;
    }
    return err_set(e, ERR_WORKER_UNAVAILABLE, "no worker serves the session");
}

static struct http_client *client_of(struct workers *w, struct str id, struct err *e)
{
    struct http_client_options o = {.max_idle = 64};
    char path[128], url[160];
    int place = choose_worker(w, id, e);

    if (place < 0)
        return NULL;
    if (w->clients[place])
        return w->clients[place];
    w->broken[place] = true;
    if (heritage_socket_path(w->h->run_dir, w->h->board->worker_base + (uint32_t)place, path,
                             sizeof(path))) {
        (void)err_set(e, ERR_CONFIG, "the run folder's path is too long");
        return NULL;
    }
    (void)snprintf(url, sizeof(url), "unix:%s", path);
    if (http_client_new(w->loop, url, &o, &w->clients[place], e))
        return NULL;
    w->broken[place] = false;
    return w->clients[place];
}

/* Starts a call; `r` comes without headers and body. */
static struct http_fetch *start_call(struct workers *w, struct str id, struct http_request *r,
                                     struct str body, http_fetch_fn fn, void *ctx)
{
    struct err e = {0};
    struct http_client *client = client_of(w, id, &e);
    struct buf headers = {0}, sent = {0};
    struct http_fetch *f;

    if (!client)
        return http_fetch_refused(w->loop, &e, &w->calls, fn, ctx);
    if (w->key[0])
        buf_printf(&headers, "Authorization: Bearer %s\r\n", w->key);
    buf_add_str(&sent, body);
    r->headers = buf_str(&headers);
    r->body = sent.len > 0 ? &sent : NULL;
    f = http_fetch(client, r, &w->calls, fn, ctx);
    buf_done(&headers);
    buf_done(&sent);
    return f;
}

/* A request has all these parameters. NOLINTNEXTLINE(readability-function-size) */
struct http_fetch *worker_call(struct workers *w, struct str id, const char *method,
                               struct str path, struct str body, http_fetch_fn fn, void *ctx)
{
    struct http_request r = {.method = method, .path = path, .total_timeout_ms = ANSWER_TIMEOUT_MS};

    return start_call(w, id, &r, body, fn, ctx);
}

struct http_fetch *worker_make_session(struct workers *w, struct str body, http_fetch_fn fn,
                                       void *ctx)
{
    struct http_request r = {
        .method = "POST", .path = STR("/sessions"), .total_timeout_ms = SESSION_TIMEOUT_MS};

    return start_call(w, (struct str){0}, &r, body, fn, ctx);
}

struct http_fetch *worker_call_long(struct workers *w, struct str id, struct str path,
                                    struct str body, http_fetch_fn fn, void *ctx)
{
    struct http_request r = {.method = "POST", .path = path};

    return start_call(w, id, &r, body, fn, ctx);
}

/* Returns errno of the last attempt to connect to the place; 0: it can be reached, or was not
 * tried. A full backlog only means that the worker is busy. */
static int connect_error(const struct workers *w, unsigned place)
{
    int sys = w->clients[place] ? http_client_connect_error(w->clients[place]) : 0;

    if (w->broken[place])
        return EINVAL;
    return sys == EAGAIN ? 0 : sys;
}

const char *workers_fault(struct workers *w)
{
    for (unsigned place = 0; place < BOARD_WORKERS_MAX; place++) {
        uint32_t index = board_index(w->h->board, place);
        int sys = connect_error(w, place);

        if (sys == 0 || !board_ready(w->h->board, BOARD_WORKER0 + place))
            continue;
        (void)snprintf(w->fault, sizeof(w->fault),
                       "the dispatcher cannot reach worker %u by its socket in %.200s: %s", index,
                       w->h->run_dir, strerror(sys));
        w->fault_place = place;
        return w->fault;
    }
    return NULL;
}

unsigned workers_fault_place(const struct workers *w)
{
    return w->fault_place;
}

static void on_retried(void *ctx, int status, struct str body, const struct err *e)
{
    (void)status;
    (void)body;
    (void)e;
    ((struct workers *)ctx)->retry = NULL;
}

void workers_retry(struct workers *w)
{
    char id[ID_TEXT_MAX], path[64];

    if (w->retry)
        return;
    (void)snprintf(id, sizeof(id), "w%u-%032d", board_index(w->h->board, w->fault_place), 0);
    (void)snprintf(path, sizeof(path), "/sessions/%s", id);
    w->retry = worker_call(w, str_cstr(id), "GET", str_cstr(path), STR(""), on_retried, w);
}

bool worker_refuses(int status)
{
    return status >= 400 && status < 500 && status != 401 && status != 403 && status != 408 &&
           status != 429;
}
