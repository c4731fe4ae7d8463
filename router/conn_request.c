/* From the head of a request to its exchange: route, gate, then the router's own answer, a hold, a
 * refusal, or a relay. */
#include "router/conn_request.h"

#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "router/conn.h"
#include "router/gate.h"
#include "router/holds.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/local.h"
#include "router/node_gate.h"
#include "router/relay.h"

/* Reports whether serving the request twice has the effect of serving it once. A repeated model
 * call gets the recorded answer. */
static bool is_repeatable(const struct http1_head *h)
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE"};

    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (str_eq_c(h->method, methods[i]))
            return true;
    }
    return gate_dialect(h->target) != METRIC_DIALECT_CONTROL;
}

/* Returns for how long the client of a request has waited at other nodes, in ms. */
static uint64_t waited_before(const struct http1_head *h)
{
    uint64_t ms = 0;

    (void)str_to_u64(http1_known(h, HTTP1_WAITED_MS), UINT32_MAX, &ms);
    return ms;
}

/* Stores what the exchange needs of the head, which is overwritten later. */
static void keep_request(struct conn *c, const struct http1_head *h, const struct route *route)
{
    c->old = h->minor == 0 || (c->old && c->hold.until_ms > 0); /* a kept head has our version */
    if (c->hold.until_ms == 0)
        c->began_ms = loop_now_ms(c->hub->loop) - waited_before(h);
    c->closing = !h->keep_alive || gate_ends_connections(c->hub);
    c->messages_dialect = route->messages;
    memcpy(c->session, route->session.p ? route->session.p : "", route->session.len);
    c->session[route->session.len] = 0;
    c->status = 0;
    c->finishes = c->hub->config->on_disconnect == DISCONNECT_FINISH &&
                  gate_dialect(h->target) != METRIC_DIALECT_CONTROL;
    c->repeatable = c->hub->heritage->fleet && is_repeatable(h);
    c->expects = h->expects_continue;
    c->offered = false;
}

/* Reports whether the client of a call left before the call began. A worker would read the body
 * only to drop the call. False if workers of other gateways may serve it: their settings decide. */
static bool is_abandoned(const struct conn *c, const struct http1_head *h)
{
    const struct config *config = c->hub->config;

    return c->hup && config->on_disconnect != DISCONNECT_FINISH && config->upstream.n == 0 &&
           config->peer.n == 0 && !c->hub->heritage->fleet &&
           gate_dialect(h->target) != METRIC_DIALECT_CONTROL;
}

static void drop_abandoned(struct conn *c, const struct http1_head *h)
{
    metrics_count_at(c->hub->page, METRIC_requests, gate_dialect(h->target), metrics_status(499),
                     1);
    conn_close(c);
}

/* Passes the request to the relay, or answers it here. `body`: the bytes of its body so far. */
static int start_exchange(struct conn *c, const struct route *route, int upstream, struct str head,
                          struct str body, struct err *e)
{
    if (route_is_local(route)) {
        lendings_note(c, -1);
        return local_answer(c, c->hub->head, route->kind, e);
    }
    lendings_note(c, upstream);
    if (upstream < 0 && (route->named || route->kind == ROUTE_WORKER))
        metrics_count(c->hub->page, METRIC_fallbacks, 1);
    c->hold.place = node_gate_place(route);
    if (relay_start(c, upstream, head, body, e) != 0)
        return -1;
    if (c->hops)
        holds_watch_hop(c, upstream);
    return 0;
}

/* Holds a request that the gate has refused, if a node may serve its place soon. Returns false if
 * it must be refused. */
static bool hold_request(struct conn *c, const struct route *route, struct err *e)
{
    if (e->kind != ERR_NO_OWNER || !holds_may_hold(c) || gate_admit(c, route, e) != 0)
        return false;
    lendings_note(c, -1);
    holds_begin(c, node_gate_place(route));
    return true;
}

size_t conn_begin_request(struct conn *c, struct str bytes)
{
    struct http1_head *h = c->hub->head;
    struct str rest = str_sub(bytes, h->len_bytes, bytes.len);
    struct route route;
    struct err e;
    size_t used, pass;
    int r, shown, upstream = -1;

    node_gate_believe(c->hub, h);
    shown = route_find(h, gate_keys(c->hub), &route, &e);
    keep_request(c, h, &route);
    flow_begin(&c->up, h->body, h->length);
    r = flow_take(&c->up, rest, &used, &pass, shown == 0 ? &e : NULL);
    if (r == 0)
        r = shown == 0 ? gate_check(c, h, &route, &upstream, &e) : shown;
    if (r != 0 && hold_request(c, &route, &e))
        return 0;
    if (r == 0)
        r = gate_admit(c, &route, &e);
    if (r == 0 && is_abandoned(c, h)) {
        drop_abandoned(c, h);
        return 0;
    }
    if (r == 0 && relay_offers(c, upstream)) {
        c->offered = true;
        flow_begin(&c->up, h->body, h->length);
        used = pass = 0;
    }
    if (r == 0)
        r = start_exchange(c, &route, upstream, str_sub(bytes, 0, h->len_bytes),
                           str_sub(rest, 0, pass), &e);
    if (r != 0)
        conn_fail(c, &e);
    return h->len_bytes + used;
}
