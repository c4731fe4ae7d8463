/* Decisions that need only the key are made here, so that a worker does not read a body for a
 * request that it will refuse. Workers check again. */

#include "router/gate.h"

#include "common/net/http1.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "router/browser_gate.h"
#include "router/callers.h"
#include "router/conn.h"
#include "router/hub.h"
#include "router/node_gate.h"
#include "router/route.h"
#include "router/upstreams.h"

const struct keys *gate_keys(const struct hub *h)
{
    const struct config *c = h->config;
    bool own = c->upstream.n == 0; /* our workers, whose secret is in the state folder */

    return h->keys && c->admin_key_file && (own || c->key_secret_file) ? h->keys : NULL;
}

/* Workers count such a request under the same label. */
unsigned gate_dialect(struct str target)
{
    static const struct {
        struct str end;
        unsigned label;
    } ends[] = {
        {STR_LIT("/chat/completions"), METRIC_DIALECT_CHAT},
        {STR_LIT("/messages"), METRIC_DIALECT_MESSAGES},
        {STR_LIT("/messages/count_tokens"), METRIC_DIALECT_COUNT_TOKENS},
        {STR_LIT("/responses"), METRIC_DIALECT_RESPONSES},
        {STR_LIT("/completions"), METRIC_DIALECT_COMPLETIONS},
    };
    struct str path = str_sub(target, 0, str_find(target, STR("?"), 0));

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        if (str_ends(path, ends[i].end))
            return ends[i].label;
    }
    return METRIC_DIALECT_CONTROL;
}

/* Reports whether a valid key of that scope may be used for such a path at all. /attempts:
 * executors and admins. Other paths: keys of sessions and admins. */
static bool admits_scope(const struct route *route, enum key_scope scope)
{
    if (scope == KEY_ADMIN)
        return true;
    return !route->admins && (scope == KEY_EXECUTOR) == (route->kind == ROUTE_DISPATCHER);
}

/* Refuses a key that does not cover the session of the path, or whose scope the path does not
 * accept. Checks the query for keys last, because that costs the most. */
static int check_key(const struct keys *k, const struct http1_head *head, const struct route *route,
                     struct err *e)
{
    size_t query = str_find(head->target, STR("?"), 0);

    if (proof_covers(&route->proof, route->place, e))
        return -1;
    if (!admits_scope(route, route->proof.scope))
        return err_set(e, ERR_WRONG_SCOPE, "the key does not allow this request");
    return query < head->target.len
               ? keys_check_query(k, str_sub(head->target, query + 1, SIZE_MAX), e)
               : 0;
}

/* Checks the keys and counts refusals. */
static int check_keys(const struct hub *h, const struct http1_head *head, const struct route *route,
                      struct err *e)
{
    const struct keys *k = gate_keys(h);

    if (!k || route->open || check_key(k, head, route, e) == 0)
        return 0;
    if (e->kind != ERR_INVALID)
        metrics_count_at(h->page, METRIC_refusals, METRIC_REFUSAL_KEY, 0, 1);
    metrics_count_at(h->page, METRIC_requests, gate_dialect(head->target),
                     metrics_status(err_status(e)), 1);
    return -1;
}

static bool is_continue(struct str expect)
{
    return str_eq_nocase(expect, STR("100-continue"));
}

/* Refuses requests of HTTP/1.1 that this server does not support. */
static int check_head(const struct http1_head *h, bool local, struct err *e)
{
    if (h->at[HTTP1_HOST] == 0 && !local)
        return err_set(e, ERR_INVALID, "no Host header");
    if (http1_list_has(http1_known(h, HTTP1_UPGRADE), STR("websocket")))
        return err_set(e, ERR_UPGRADE, "this server speaks HTTP/1.1 only, no WebSocket");
    if (http1_known(h, HTTP1_EXPECT).p && !is_continue(http1_known(h, HTTP1_EXPECT)))
        return err_set(e, ERR_EXPECTATION, "Expect: %.*s cannot be met; only 100-continue can",
                       (int)MIN_OF(http1_known(h, HTTP1_EXPECT).len, 40),
                       http1_known(h, HTTP1_EXPECT).p);
    return 0;
}

bool gate_ends_connections(const struct hub *h)
{
    return h->draining || atomic_load_explicit(&h->heritage->board->leaving, memory_order_relaxed);
}

/* Refuses requests while the whole service stops, unless a next instance serves its port. A node
 * that leaves its fleet sends them on until it ends. One that stops keeps its places: the node that
 * forwarded a request holds it after a 421. */
static int check_draining(const struct heritage *h, const struct http1_head *head,
                          const struct route *route, struct err *e)
{
    const struct board *b = h->board;

    if (h->port_kept || !atomic_load_explicit(&b->draining, memory_order_relaxed) ||
        atomic_load_explicit(&b->leaving, memory_order_relaxed))
        return 0;
    if (h->fleet && head->at[HTTP1_FORWARDED] && route->kind != ROUTE_ANY)
        return err_set(e, ERR_MISDIRECTED, "the node that owns this place is stopping");
    return err_set(e, ERR_DRAINING, "the service is stopping");
}

int gate_check(const struct conn *c, const struct http1_head *h, const struct route *route,
               int *ret_upstream, struct err *e)
{
    const struct heritage *heritage = c->hub->heritage;
    uint64_t max = (uint64_t)c->hub->config->max_body_bytes;
    bool local = route_is_local(route);

    if (browser_gate_check(c->hub, h, e) != 0)
        return -1;
    if (!local && check_draining(heritage, h, route, e) != 0)
        return -1;
    if ((h->body == HTTP1_LENGTH && h->length > max) || c->up.chunked.total_bytes > max)
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "the body is larger than --max-body-bytes allows (%llu bytes)",
                       (unsigned long long)max);
    *ret_upstream = -1;
    if (check_head(h, local, e) != 0)
        return -1;
    if (local)
        return 0;
    if (heritage->fleet) { /* all nodes have the same keys: nothing is held without a key */
        return check_keys(c->hub, h, route, e) != 0
                   ? -1
                   : node_gate_find(c->hub, h, route, ret_upstream, e);
    }
    if (node_gate_find(c->hub, h, route, ret_upstream, e) != 0)
        return -1;
    if (upstreams_is_peer(*ret_upstream)) /* the peer checks its own keys */
        return 0;
    return check_keys(c->hub, h, route, e);
}

/* Returns the limit of connections for the key; 0: no limit. It is --max-key-connections, but at
 * most half of all connections of the router, so that one key leaves capacity for others. Renewals
 * have an eighth more. Otherwise waiting claims and ends could block a renewal until the executor's
 * attempts are declared lost. */
static uint64_t most_connections(const struct hub *h, const struct route *route)
{
    uint64_t max = (uint64_t)h->config->max_key_connections;

    if (max > 0 && h->max_clients > 0)
        max = MIN_OF(max, MAX_OF(h->max_clients / 2, (size_t)1));
    return max > 0 && route->renews ? max + max / 8 + 1 : max;
}

/* Counts the connection under its key. */
static int count_under_key(struct conn *c, const struct route *route, struct err *e)
{
    const struct proof *proof = &route->proof;
    struct hub *h = c->hub;
    char text[CALLER_NAME_MAX];
    uint64_t max = most_connections(h, route);
    struct str name;

    if (!gate_keys(h) || !proof->id.p)
        return 0;
    name = caller_of_key(proof->scope, proof->id, text);
    if (c->key && str_eq(name, str_of(c->key->name, c->key->name_len)))
        return 0;
    if (max > 0 && callers_connections(&h->callers, name) >= max) {
        metrics_count_at(h->page, METRIC_refusals, METRIC_REFUSAL_KEY_CONNECTIONS, 0, 1);
        return err_set(e, ERR_OVERLOADED,
                       "more than %llu connections with one key (--max-key-connections, and at "
                       "most half of --max-connections or of what the descriptors allow)",
                       (unsigned long long)max);
    }
    callers_leave(&h->callers, c->key);
    c->key = callers_join(&h->callers, name);
    return 0;
}

/* A node that vanishes in the middle of a body sends no end. */
static void probe_node(struct conn *c)
{
    if (c->of_node || !c->hub->heritage->fleet || !c->hub->head->at[HTTP1_FORWARDED])
        return;
    c->of_node = true;
    upstreams_probe(c->hub->upstreams, c->fd);
}

/* A request that the router answers itself proves nothing. Neither does a request without a key to
 * an open path, if this router verifies keys. */
int gate_admit(struct conn *c, const struct route *route, struct err *e)
{
    if (route_is_local(route))
        return 0;
    if (count_under_key(c, route, e) != 0)
        return -1;
    probe_node(c);
    if (!gate_keys(c->hub) || route->proof.scope != KEY_NONE)
        conn_known(c);
    return 0;
}
