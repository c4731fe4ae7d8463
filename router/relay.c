/* One exchange: gets a link to the worker, sends the head, then lets upload.c and answer.c move
 * bytes, and acts on their verdicts. A request is sent a second time only if the worker cannot have
 * acted on it: an idle link was dead, or the link ended before any byte of an answer. Short
 * requests are kept for that (keep_replay). */

#include "router/relay.h"

#include <stdio.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "router/answer.h"
#include "router/bodies.h"
#include "router/heads.h"
#include "router/holds.h"
#include "router/hub.h"
#include "router/upload.h"
#include "router/upstreams.h"

enum { TRIES_MAX = 3 };

static const char NOT_SERVED[] = "the node that owns a place did not serve a request";

static void on_link(struct link *link, unsigned events);

/* ------------------------------------------------------------------ links */

/* Gets a link to the upstream, or to any worker (-1). Returns NULL and e if none can be reached. */
static struct link *take_link(struct conn *c, int upstream, bool fresh, struct err *e)
{
    struct upstreams *u = c->hub->upstreams;
    size_t total = upstreams_count(u);

    if (upstream >= 0)
        return link_get(u, (unsigned)upstream, fresh, c, on_link, e);
    err_set(e, ERR_WORKER_UNAVAILABLE, "no session-worker is running");
    for (size_t i = 0; i < total && i < 16; i++) {
        struct link *link = link_get(u, (unsigned)upstreams_any(u), fresh, c, on_link, e);

        if (link != NULL)
            return link;
    }
    return NULL;
}

/* Keeps a copy of a short request while a second try is possible. */
static void keep_replay(struct conn *c, const struct iovec *iov, int n)
{
    uint64_t total = c->up.body == HTTP1_LENGTH ? c->up.left_bytes : 0; /* awaited bytes */

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total > UPLOAD_KEPT_MAX)
        return;
    (void)buf_reserve(&c->replay, total);
    for (int i = 0; i < n; i++)
        buf_add(&c->replay, iov[i].iov_base, iov[i].iov_len);
}

/* Keeps a request for a different node of the fleet as it was received, because a later try may go
 * to another upstream. */
static void keep_hop(struct conn *c, struct str head, struct str body)
{
    buf_add_str(&c->replay, head);
    buf_add_str(&c->replay, body);
}

/* Logs the upstream that could not be reached (-1: any own worker). Returns -1. For a different
 * node of the fleet returns 0: relay_pump decides then. */
static int handle_unreachable(struct conn *c, int upstream, const struct err *e)
{
    c->unsent = c->hops;
    hub_blame_worker(c->hub, c->session, upstream, c->hops ? NOT_SERVED : e->text);
    return c->hops ? 0 : -1;
}

/* Sends the first bytes of a request. An idle link that was dead refuses all of them; then they are
 * sent on a new link. */
static int send_first(struct conn *c, int upstream, struct iovec *iov, int n, struct err *e)
{
    c->link = take_link(c, upstream, false, e);
    if (c->link == NULL)
        return handle_unreachable(c, upstream, e);
    if (!c->hops)
        keep_replay(c, iov, n);
    upload_write(c, iov, n);
    if (c->upload != UPLOAD_ENDED || !c->link->reused)
        return 0;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    c->upload = UPLOAD_FLOWS;
    c->link = take_link(c, upstream, true, e);
    if (c->link == NULL)
        return handle_unreachable(c, upstream, e);
    upload_write(c, iov, n);
    return 0;
}

/* Writes the value of HTTP1_FORWARDED_BY for a request to the upstream, and returns it; absent: no
 * such line. A gateway sends the range of its own workers to its peer, in a fleet its name and a
 * proof. `rollgate route` keeps the received value and appends itself. */
static struct str name_forwarder(const struct conn *c, int upstream, char text[HEADS_FORWARDER_MAX])
{
    const struct upstreams *u = c->hub->upstreams;
    struct str before = http1_known(c->hub->head, HTTP1_FORWARDED);
    int n;

    if (c->hops)
        return hub_show_name(c->hub, text);
    if (upstreams_is_peer(upstream))
        return upstreams_own_range(u, text);
    if (c->hub->config->upstream.n == 0 || !upstreams_is_remote(u, upstream))
        return (struct str){0};
    n = snprintf(text, HEADS_FORWARDER_MAX, "%.*s%s" HTTP1_ROUTE,
                 (int)MIN_OF(before.len, (size_t)UPSTREAMS_RANGE_TEXT), before.p ? before.p : "",
                 before.len > 0 ? ", " : "");
    return str_of(text, (size_t)n);
}

bool relay_offers(const struct conn *c, int upstream)
{
    const struct http1_head *h = c->hub->head;

    return upstreams_is_node(c->hub->upstreams, upstream) && !c->up.done &&
           (h->expects_continue || h->body == HTTP1_CHUNKED ||
            h->len_bytes + h->length > UPLOAD_HOP_KEPT_MAX);
}

/* Reports whether the sender, who waits for 100 Continue, is to send the body: the worker that
 * serves the request reads all of it first. A different gateway answers by itself. */
static bool accepts_body(const struct conn *c, int upstream)
{
    return c->expects && !c->hops && !upstreams_is_remote(c->hub->upstreams, upstream) &&
           !c->up.done;
}

/* Drops the client's Expect, which it may also name in Connection: we ask nodes by our own line. */
static void drop_expect(const struct conn *c, int upstream)
{
    struct http1_head *h = c->hub->head;

    if (h->at[HTTP1_EXPECT] && (c->hops || !upstreams_is_remote(c->hub->upstreams, upstream)))
        h->headers[h->at[HTTP1_EXPECT] - 1].drop = true;
}

/* Bytes that could not be sent at once wait in c->up. */
int relay_start(struct conn *c, int upstream, struct str head, struct str body, struct err *e)
{
    struct iovec iov[HEADS_IOV];
    char extra[HEADS_EXTRA], forwarder[HEADS_FORWARDER_MAX];
    int n;

    c->hops = upstreams_is_node(c->hub->upstreams, upstream);
    c->unsent = false;
    if (c->hops) {
        keep_hop(c, head, body);
        metrics_count(c->hub->page, METRIC_fleet_forwarded, 1);
    }
    drop_expect(c, upstream);
    c->spacious = heads_have_space(c->hub->head);
    c->confirms = c->spacious && upstreams_confirmed(c->hub->upstreams, upstream);
    n = heads_request(c->hub->head,
                      &(struct heads_request){
                          .confirms = c->confirms,
                          .expects = c->offered,
                          .waited_ms = c->spacious ? loop_now_ms(c->hub->loop) - c->began_ms : 0,
                          .encrypted = c->tls != NULL,
                          .host = upstreams_authority(c->hub->upstreams, upstream),
                          .forwarded = name_forwarder(c, upstream, forwarder),
                      },
                      body, extra, iov);
    c->upload = UPLOAD_FLOWS;
    conn_set_state(c, CONN_RELAY);
    c->any = upstream < 0;
    flow_begin(&c->down, HTTP1_UNTIL_CLOSE, 0);
    c->down.done = false;
    conn_no_deadline(c);
    c->body_left_ms = (uint64_t)c->hub->config->body_timeout_ms;
    c->body_waits = c->body_trickles = false;
    c->body_fresh_bytes = 0;
    if (!c->up.done)
        bodies_take(c, body.len);
    if (accepts_body(c, upstream))
        answer_accept(c);
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, body.len);
    return send_first(c, upstream, iov, n, e);
}

/* Ends a hop: a different node of the fleet did not accept the request, or was lost with it. A
 * request that is kept is held for a later try. The client must repeat a different one. */
static enum verdict end_hop(struct conn *c, struct err *e)
{
    if (c->link) {
        hub_blame_worker(c->hub, c->session, (int)c->link->upstream, NOT_SERVED);
        upstreams_close_idle(c->hub->upstreams, c->link->upstream);
        link_close(c->link);
        c->link = NULL;
    }
    if (c->replay.len > 0 && c->answer == ANSWER_NONE) {
        metrics_count(c->hub->page, METRIC_upstream_resends, 1);
        return VERDICT_HOLD;
    }
    (void)err_set(e, ERR_NO_OWNER, "the node that serves this request was lost; send it again");
    return VERDICT_REFUSE;
}

/* Whether the worker has no successor here, because this node leaves its fleet. */
static bool has_left(const struct conn *c, int upstream)
{
    const struct board *b = c->hub->heritage->board;

    return atomic_load_explicit(&b->leaving, memory_order_relaxed) &&
           (upstream < 0 ||
            (upstream < BOARD_WORKERS_MAX && !board_ready(b, BOARD_WORKER0 + (unsigned)upstream)));
}

/* Holds a kept request until its place has its next owner. One that a different node forwarded is
 * held there. */
static enum verdict leave_to_next_owner(const struct conn *c, struct err *e)
{
    if (!c->of_node)
        return VERDICT_HOLD;
    (void)err_set(e, ERR_MISDIRECTED, "this node leaves the fleet, and its workers have ended");
    return VERDICT_REFUSE;
}

/* Sends a kept request on the new link, with the time that its client has waited. */
static void write_again(struct conn *c)
{
    struct str request = buf_str(&c->replay);
    size_t line = str_find(request, STR("\r\n"), 0) + 2;
    char waited[sizeof(HTTP1_WAITED) + 32];
    int n = snprintf(waited, sizeof(waited), HTTP1_WAITED ": %llu\r\n",
                     (unsigned long long)(loop_now_ms(c->hub->loop) - c->began_ms));
    struct iovec iov[] = {{c->replay.p, line},
                          {waited, c->spacious ? (size_t)n : 0},
                          {c->replay.p + line, request.len - line}};

    upload_write(c, iov, ARRAY_LEN(iov));
}

/* Sends a kept request once more on a new link: its link ended before any byte of an answer, and
 * the worker cannot have acted on it. Returns VERDICT_REFUSE if it cannot be sent again. */
static enum verdict send_again(struct conn *c, struct err *e)
{
    int upstream = c->any ? -1 : (int)c->link->upstream;

    if (c->replay.len == 0 || c->answer == ANSWER_INTERIM || c->resent) {
        (void)handle_unreachable(c, (int)c->link->upstream, e);
        return VERDICT_REFUSE;
    }
    if (has_left(c, upstream))
        return leave_to_next_owner(c, e);
    c->resent = true;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    flow_clear(&c->up);
    c->upload = UPLOAD_FLOWS;
    c->link = take_link(c, upstream, true, e);
    if (c->link == NULL) {
        (void)handle_unreachable(c, upstream, e);
        return VERDICT_REFUSE;
    }
    write_again(c);
    if (c->up.done)
        return VERDICT_WAIT;
    c->in_seen = 0; /* its rest may be here already */
    return VERDICT_AGAIN;
}

/* ------------------------------------------------------------------ turns */

/* Gives the client --send-timeout to accept some parked bytes. Bytes that it sends do not extend
 * that time; otherwise a client that never reads could keep an answer here. */
static void await_reader(struct conn *c)
{
    bool same = c->stuck && c->stuck_at == c->down.given_bytes;

    c->stuck = true;
    c->stuck_at = c->down.given_bytes;
    if (!same)
        conn_set_deadline(c, (uint64_t)c->hub->config->send_timeout_ms);
}

static void await_acceptance(struct conn *c)
{
    uint64_t now_ms = loop_now_ms(c->hub->loop), until_ms = holds_accept_ms(c);

    conn_set_deadline(c, until_ms > now_ms ? until_ms - now_ms : 0);
}

/* Sets the deadline for the side that the exchange waits for. */
static void set_deadline(struct conn *c)
{
    bool waits = !c->up.done && c->upload == UPLOAD_FLOWS && !c->offered && !flow_parked(&c->up);
    uint64_t body_ms = waits ? bodies_patience_ms(c) : 0;

    c->body_waits = waits;
    if (flow_parked(&c->down) || c->farewell) {
        await_reader(c);
        return;
    }
    c->stuck = false;
    if (waits)
        conn_set_deadline(c, body_ms);
    else if (c->offered && !conn_answered(c))
        await_acceptance(c);
    else
        conn_no_deadline(c);
}

void relay_refuse_offer(struct conn *c)
{
    struct err e;

    if (loop_now_ms(c->hub->loop) < holds_accept_ms(c)) {
        await_acceptance(c);
        return;
    }
    err_set(&e, ERR_NO_OWNER,
            "the node that owns the place of this request did not accept its body in time");
    hub_blame_worker(c->hub, c->session, c->link ? (int)c->link->upstream : -1, e.text);
    conn_fail(c, &e);
}

bool relay_owes(const struct conn *c)
{
    return c->finishes && c->state == CONN_RELAY && c->link != NULL && c->upload == UPLOAD_FLOWS &&
           c->up.done && flow_parked(&c->up);
}

/* Moves the request, then the answer. */
static enum verdict pump_both(struct conn *c, size_t *budget, struct err *e)
{
    enum verdict v = bodies_refused(c, e) ? upload_refuse(c) : upload_pump(c, budget, e);
    bool offered = c->offered;

    if (c->up.done)
        conn_forget_body(c);
    if (v == VERDICT_CLOSE || v == VERDICT_REFUSE)
        return v;
    if (c->hup && c->up.done && c->link != NULL && !c->down.done && !relay_owes(c))
        return VERDICT_CLOSE; /* the client has left: the answer is not needed */
    v = answer_pump(c, budget, e);
    if (v == VERDICT_LOST && c->hops)
        return end_hop(c, e);
    if (v == VERDICT_WAIT && offered && !c->offered)
        return VERDICT_AGAIN; /* the node accepts the body */
    return v == VERDICT_LOST ? send_again(c, e) : v;
}

enum verdict relay_pump(struct conn *c, struct err *e)
{
    size_t budget = c->tls ? HUB_TLS_TURN_BYTES : HUB_TURN_BYTES;
    enum verdict v = c->unsent ? end_hop(c, e) : pump_both(c, &budget, e);

    c->unsent = false;
    if (v != VERDICT_WAIT && v != VERDICT_AGAIN)
        return v;
    set_deadline(c);
    return budget == 0 ? VERDICT_AGAIN : v;
}

/* Handles an event of the link. */
static void on_link(struct link *link, unsigned events)
{
    struct conn *c = link->owner;
    struct err e;
    bool failed = link->state == LINK_CONNECTING && (events & LOOP_ERR);
    int upstream = (int)link->upstream;

    CHECK(c->link == link);
    if (failed) {
        link_close(link);
        c->link = NULL;
        err_set(&e, ERR_WORKER_UNAVAILABLE, "the session-worker cannot be reached");
        if (c->any && ++c->tries < TRIES_MAX)
            c->link = take_link(c, -1, true, &e);
        if (c->link == NULL && handle_unreachable(c, upstream, &e) != 0)
            conn_fail(c, &e);
    }
    c->hub->run(c);
}
