/* /health, /ready and /metrics come from shared memory, so they are answered while workers are busy
 * or gone. */

#include "router/local.h"

#include "common/base/cancel.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "common/proc/presented.h"
#include "router/conn.h"
#include "router/hub.h"
#include "router/reply.h"
#include "router/upstreams.h"

static bool is_draining(const struct hub *h)
{
    return h->draining || atomic_load_explicit(&h->heritage->board->draining, memory_order_relaxed);
}

/* Returns the public name of the state of KV admission. */
static const char *kv_admission(const struct hub *h)
{
    if (h->config->kv_admission == 0)
        return "off";
    return board_kv_untold(h->heritage->board) ? "untold" : "on";
}

/* Writes the bases of logprobs that engines return, or are asked for, as a JSON list. */
static void put_bases(const struct board *b, const char *key, bool asked, struct buf *body)
{
    const char *comma = "", *name;
    bool some;

    buf_printf(body, ", \"%s\": [", key);
    for (unsigned i = 0; (name = board_engines_basis(b, i, asked, &some)); i++) {
        if (some) {
            buf_printf(body, "%s\"%s\"", comma, name);
            comma = ", ";
        }
    }
    buf_puts(body, "]");
}

/* Writes the abilities that some engine lacks, as a JSON list. */
static void put_lacks(const struct board *b, struct buf *body)
{
    const char *comma = "", *name;
    bool some;

    buf_puts(body, ", \"engines_lack\": [");
    for (unsigned i = 0; (name = board_engines_lack(b, i, &some)); i++) {
        if (some) {
            buf_printf(body, "%s\"%s\"", comma, name);
            comma = ", ";
        }
    }
    buf_puts(body, "]");
}

/* Writes the worker indexes of the peers, if there are any; the figures exclude them. Leaves out
 * their addresses, because the request needs no key. Nodes of a fleet are not unreachable. */
static void put_unreachable(const struct heritage *heritage, struct buf *body)
{
    struct buf peers = {0};
    struct str rest;

    if (!heritage->fleet)
        heritage_list_peers(heritage, true, &peers);
    rest = buf_str(&peers);
    if (rest.len > 0)
        buf_puts(body, ", \"unreachable\": [");
    while (rest.len > 0) {
        size_t end = str_find(rest, STR(", "), 0);
        struct str peer = str_sub(rest, 0, end);

        rest = str_sub(rest, peer.len + 2, SIZE_MAX);
        buf_printf(body, "\"%.*s\"%s", (int)peer.len, peer.p, rest.len > 0 ? ", " : "]");
    }
    buf_done(&peers);
}

/* Writes the metrics. A comment names the peers' workers, which have pages of their own. */
static void metrics_body(const struct hub *h, struct buf *body)
{
    struct buf peers = {0};

    heritage_list_peers(h->heritage, true, &peers);
    if (peers.len > 0)
        buf_printf(body, METRICS_UNREACHABLE "%.*s\n", (int)peers.len, peers.p);
    metrics_render(h->heritage->metrics, body);
    buf_done(&peers);
}

/* Writes the body. Returns the status: 200, or 503 while the gateway drains. */
static int health_body(const struct hub *h, struct buf *body)
{
    const struct board *b = h->heritage->board;
    bool ends = is_draining(h);

    buf_printf(body,
               "{\"status\": \"%s\", \"session_server_instance_id\": \"%s\", \"version\": \"%s\", "
               "\"workers\": {\"total\": %zu, \"ready\": %u}, \"routers\": %u, \"paused\": %u, "
               "\"engine_answers\": %s, \"engines_drift\": %u, \"kv_admission\": \"%s\"",
               ends ? "draining" : "ok", b->instance, RG_VERSION, upstreams_count(h->upstreams),
               board_workers_ready(b), atomic_load_explicit(&b->routers, memory_order_relaxed),
               board_workers_paused(b), board_engine_answers(b) ? "true" : "false",
               board_engines_drift(b), kv_admission(h));
    put_bases(b, "logprobs_asked", true, body);
    put_bases(b, "logprobs", false, body);
    put_lacks(b, body);
    put_unreachable(h->heritage, body);
    buf_puts(body, "}\n");
    return ends ? 503 : 200;
}

/* Writes the body. Returns the status: 200, or 503 with the reason. */
static int ready_body(const struct hub *h, struct buf *body)
{
    const char *reason = "draining";

    if (!h->draining && heritage_check_ready(h->heritage, &reason) == 0) {
        buf_printf(body, "{\"status\": \"ready\", \"paused\": %u}\n",
                   board_workers_paused(h->heritage->board));
        return 200;
    }
    buf_printf(body, "{\"status\": \"not ready\", \"reason\": \"%s\"}\n", reason);
    return 503;
}

/* Writes the body. Returns the status. */
static int make_body(const struct hub *h, enum route_kind what, struct buf *body)
{
    switch (what) {
    case ROUTE_HEALTH:
        return health_body(h, body);
    case ROUTE_READY:
        return ready_body(h, body);
    default:
        metrics_body(h, body);
        return 200;
    }
}

/* Checks the method, and for /metrics the key. With --metrics-auth an admin's key is needed. A
 * session's key is always refused. */
static int check_local(const struct conn *c, const struct http1_head *h, enum route_kind what,
                       struct err *e)
{
    const struct hub *hub = c->hub;
    struct presented shown;
    struct proof proof;
    size_t query_at;

    if (!str_eq(h->method, STR("GET")) && !str_eq(h->method, STR("HEAD")))
        return err_set(e, ERR_METHOD, "only GET and HEAD are served here");
    if (what != ROUTE_METRICS || hub->keys == NULL)
        return 0;
    query_at = str_find(h->target, STR("?"), 0);
    if (query_at < h->target.len &&
        keys_check_query(hub->keys, str_sub(h->target, query_at + 1, SIZE_MAX), e))
        return -1;
    route_keys(h, &shown);
    if (presented_prove(&shown, hub->keys, &proof, e) != 0)
        return -1;
    if (proof.scope == KEY_NONE && !proof.meant && !hub->config->metrics_auth)
        return 0;
    if (proof.scope == KEY_NONE)
        return err_set(e, ERR_MISSING_KEY, "metrics need an admin key");
    if (proof.scope != KEY_ADMIN) /* a session's key does not read metrics */
        return err_set(e, ERR_WRONG_SCOPE, "metrics need an admin key");
    return 0;
}

/* The answer is parked in c->down, and the next turn sends it. */
int local_answer(struct conn *c, const struct http1_head *h, enum route_kind what, struct err *e)
{
    char id[HUB_REQUEST_ID_MAX];
    struct reply_to to = {.head = c->head_request, .old = c->old};
    struct buf body = {0};

    c->upload = UPLOAD_FLOWS;
    conn_set_state(c, CONN_RELAY);
    if (check_local(c, h, what, e) != 0)
        return -1;
    c->closing = c->closing || !c->up.done;
    to.close = c->closing;
    to.request_id = hub_request_id(c->hub, id);
    c->status = make_body(c->hub, what, &body);
    flow_begin(&c->down, HTTP1_NO_BODY, 0);
    reply_body(&c->down.parked, &to, c->status,
               what == ROUTE_METRICS ? "text/plain; version=0.0.4; charset=utf-8"
                                     : "application/json",
               buf_str(&body));
    c->upload = UPLOAD_ENDED;
    c->answer = ANSWER_BEGUN;
    buf_done(&body);
    return 0;
}
