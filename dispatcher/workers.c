/*
 * One HTTP client for each worker place, made when the place is first called and kept. A session's
 * call goes to the place of its id. If a place was removed by scaling, its adopter serves the
 * socket, so the path is the same. Calls without a session go to the ready workers in turn. A call
 * that cannot be made still ends through its callback, with the error. In a fleet there is one
 * client more for each node, at the address of its routers.
 */
#include "dispatcher/workers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/fleet/place_table.h"
#include "common/net/http_client.h"
#include "common/proc/board.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "dispatcher/node_choice.h"

enum {
    ANSWER_TIMEOUT_MS = 120 * 1000,
    SESSION_TIMEOUT_MS = 10 * 1000,
    KEY_MAX = 256,
};

/* The routers of a node of the fleet. */
struct node_routers {
    struct http_client *client;
    char address[FLEET_ADDRESS_MAX];
    struct list_head calls;
    struct list_item old; /* in workers.old: the node has a different address now */
};

struct workers {
    const struct heritage *h;
    struct loop *loop;
    char key[KEY_MAX];
    unsigned turn;
    struct http_client *clients[BOARD_WORKERS_MAX]; /* by place; NULL: not called yet */
    bool broken[BOARD_WORKERS_MAX];                 /* by place: no client can be made */
    char fault[320];
    unsigned fault_place;
    struct http_fetch *retry;                    /* the call of workers_retry, or NULL */
    struct list_head calls;                      /* pending fetches */
    struct node_routers *nodes[FLEET_NODES_MAX]; /* by slot; NULL: not called yet */
    struct list_head old;
    struct node_choice choice;
    struct list_head makings; /* struct session_making */
};

/* A session that is being made. */
struct session_making {
    struct workers *workers;
    uint32_t slot; /* of the node */
    http_fetch_fn fn;
    void *ctx;
    struct list_item entry;
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

static void making_free(struct session_making *m)
{
    list_remove(&m->entry);
    free(m);
}

/* Frees the client. Pending calls are dropped without an answer. */
static void routers_free(struct node_routers *n)
{
    list_remove(&n->old);
    http_fetches_end(&n->calls, NULL);
    http_client_free(n->client);
    free(n);
}

/* Frees clients of former addresses whose calls have ended. `all`: the others, too. */
static void free_old(struct workers *w, bool all)
{
    struct node_routers *n, *next;

    LIST_EACH_SAFE(&w->old, n, next, struct node_routers, old) {
        if (all || list_is_empty(&n->calls))
            routers_free(n);
    }
}

void workers_free(struct workers *w)
{
    struct session_making *m;

    if (!w)
        return;
    http_fetches_end(&w->calls, NULL);
    free_old(w, true);
    for (size_t i = 0; i < FLEET_NODES_MAX; i++)
        if (w->nodes[i])
            routers_free(w->nodes[i]);
    while ((m = LIST_FIRST_OF(&w->makings, struct session_making, entry)))
        making_free(m);
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

/* --- nodes --- */

/* Returns the routers of the node at its present address; NULL with e: there is no such address. */
static struct node_routers *routers_of(struct workers *w, uint32_t slot, struct err *e)
{
    struct http_client_options o = {.max_idle = 64, .background = true};
    struct node_routers *n = w->nodes[slot];
    char url[FLEET_ADDRESS_MAX + 16];
    struct fleet_node node;

    if (!place_table_node(w->h->fleet, slot, &node)) {
        (void)err_set(e, ERR_WORKER_UNAVAILABLE, "the fleet has no such node");
        return NULL;
    }
    if (n && strcmp(n->address, node.address) != 0) {
        list_append(&w->old, &n->old); /* the caller may be a callback of its client */
        w->nodes[slot] = n = NULL;
    }
    if (n)
        return n;
    free_old(w, false);
    (void)snprintf(url, sizeof(url), "http://%s", node.address);
    n = mem_zalloc(sizeof(*n));
    if (http_client_new(w->loop, url, &o, &n->client, e)) {
        free(n);
        return NULL;
    }
    memcpy(n->address, node.address, sizeof(n->address));
    w->nodes[slot] = n;
    return n;
}

/* Reports whether a worker of this node has the session, as far as this node knows. */
static bool is_here(const struct workers *w, struct str id)
{
    uint32_t index;

    return !w->h->fleet || !id.p || ids_parse(id, &index) != 0 ||
           place_table_own_epoch(w->h->fleet, index) != 0;
}

bool workers_have_others(const struct workers *w)
{
    return w->h->fleet && node_choice_find(&w->choice, w->h, clock_ms()) != FLEET_NO_NODE;
}

/* --- calls --- */

/* Where a call goes. */
struct call_way {
    struct http_client *client; /* NULL: it cannot be made */
    struct list_head *calls;
    struct err why; /* without a client */
};

static struct call_way way_to_worker(struct workers *w, struct str id)
{
    struct call_way way = {.calls = &w->calls};

    way.client = client_of(w, id, &way.why);
    return way;
}

static struct call_way way_to_node(struct workers *w, uint32_t slot)
{
    struct call_way way = {.calls = &w->calls};
    struct node_routers *n = routers_of(w, slot, &way.why);

    if (n) {
        way.client = n->client;
        way.calls = &n->calls;
    }
    return way;
}

/* Starts a call; `r` comes without headers and body. */
static struct http_fetch *start_call(struct workers *w, const struct call_way *way,
                                     struct http_request *r, struct str body, http_fetch_fn fn,
                                     void *ctx)
{
    struct buf headers = {0}, sent = {0};
    struct http_fetch *f;

    if (!way->client)
        return http_fetch_refused(w->loop, &way->why, way->calls, fn, ctx);
    if (w->key[0])
        buf_printf(&headers, "Authorization: Bearer %s\r\n", w->key);
    buf_add_str(&sent, body);
    r->headers = buf_str(&headers);
    r->body = sent.len > 0 ? &sent : NULL;
    f = http_fetch(way->client, r, way->calls, fn, ctx);
    buf_done(&headers);
    buf_done(&sent);
    return f;
}

/* Calls the worker of the session, or the next one in turn. */
static struct http_fetch *call_worker(struct workers *w, struct str id, struct http_request *r,
                                      struct str body, http_fetch_fn fn, void *ctx)
{
    struct call_way way =
        is_here(w, id) ? way_to_worker(w, id) : way_to_node(w, place_table_self(w->h->fleet));

    return start_call(w, &way, r, body, fn, ctx);
}

/* A request has all these parameters. NOLINTNEXTLINE(readability-function-size) */
struct http_fetch *worker_call(struct workers *w, struct str id, const char *method,
                               struct str path, struct str body, http_fetch_fn fn, void *ctx)
{
    struct http_request r = {.method = method, .path = path, .total_timeout_ms = ANSWER_TIMEOUT_MS};

    return call_worker(w, id, &r, body, fn, ctx);
}

struct http_fetch *worker_ask_session(struct workers *w, const char *id, http_fetch_fn fn,
                                      void *ctx)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "/sessions/%s/wait?timeout_s=0", id);
    return worker_call(w, str_cstr(id), "GET", str_cstr(path), STR(""), fn, ctx);
}

static void on_made(void *ctx, int status, struct str body, const struct err *e)
{
    struct session_making *m = ctx;
    struct session_making made = *m;

    if (status == 0 || status == 429 || status == 503)
        node_choice_avoid(&m->workers->choice, m->slot, clock_ms());
    making_free(m);
    made.fn(made.ctx, status, body, e);
}

static void write_id(const struct workers *w, unsigned place, char ret[ID_TEXT_MAX])
{
    (void)snprintf(ret, ID_TEXT_MAX, "w%u-%032d", board_index(w->h->board, place), 0);
}

void workers_choose(struct workers *w, char ret_id[ID_TEXT_MAX])
{
    struct err e;
    int place = choose_worker(w, (struct str){0}, &e);

    ret_id[0] = '\0';
    if (place >= 0)
        write_id(w, (unsigned)place, ret_id);
}

/* Makes a session at the node with the least load; without one, at this node. */
static struct http_fetch *make_at_node(struct workers *w, struct http_request *r, struct str body,
                                       http_fetch_fn fn, void *ctx)
{
    struct session_making *m = mem_zalloc(sizeof(*m));
    uint32_t slot = node_choice_find(&w->choice, w->h, clock_ms());
    struct call_way way;

    if (slot == FLEET_NO_NODE)
        slot = place_table_self(w->h->fleet);
    node_choice_count(&w->choice, w->h, slot);
    *m = (struct session_making){.workers = w, .slot = slot, .fn = fn, .ctx = ctx};
    list_append(&w->makings, &m->entry);
    way = m->slot == place_table_self(w->h->fleet) ? way_to_worker(w, (struct str){0})
                                                   : way_to_node(w, m->slot);
    return start_call(w, &way, r, body, on_made, m);
}

struct http_fetch *worker_make_session(struct workers *w, struct str body, bool chooses,
                                       http_fetch_fn fn, void *ctx)
{
    struct http_request r = {
        .method = "POST", .path = STR("/sessions"), .total_timeout_ms = SESSION_TIMEOUT_MS};

    return w->h->fleet && !chooses ? make_at_node(w, &r, body, fn, ctx)
                                   : call_worker(w, (struct str){0}, &r, body, fn, ctx);
}

struct http_fetch *worker_call_long(struct workers *w, struct str id, struct str path,
                                    struct str body, http_fetch_fn fn, void *ctx)
{
    struct http_request r = {.method = "POST", .path = path};

    return call_worker(w, id, &r, body, fn, ctx);
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
    write_id(w, w->fault_place, id);
    (void)snprintf(path, sizeof(path), "/sessions/%s", id);
    w->retry = worker_call(w, str_cstr(id), "GET", str_cstr(path), STR(""), on_retried, w);
}

bool worker_refuses(int status)
{
    return status >= 400 && status < 500 && status != 401 && status != 403 && status != 408 &&
           status != 429;
}

bool worker_lost_session(int status, struct str body)
{
    struct arena a = {0};
    const struct json *v = NULL;
    bool lost;

    if (status != 410)
        return false;
    (void)json_parse(&a, body, &v, NULL);
    lost = str_eq_c(json_string(json_get(json_get(v, "error"), "code")), "session_lost");
    arena_done(&a);
    return lost;
}
