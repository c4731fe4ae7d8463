/* One exchange (relay.h): takes a link to the worker, sends the head, then lets upload.c and
 * answer.c move bytes in both directions, and acts on their verdicts. A request is sent a second
 * time only when the worker cannot have acted on it: an idle link had died unseen, or the link
 * ended before any byte of an answer. A short request is kept for that (keep_replay). */

#include "router/relay.h"

#include <stdio.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/answer.h"
#include "router/bodies.h"
#include "router/heads.h"
#include "router/hub.h"
#include "router/upload.h"
#include "router/upstreams.h"

enum { TRIES_MAX = 3 };

static void on_link(struct link *link, unsigned events);

/* ------------------------------------------------------------------ links */

/* A link to the named upstream, or to any; NULL and e when none can be reached. */
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

/* Keeps a copy of a request while a second try is possible. */
static void keep_replay(struct conn *c, const struct iovec *iov, int n)
{
    uint64_t total = c->up.body == HTTP1_LENGTH ? c->up.left_bytes : 0; /* still to come */

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total > UPLOAD_KEPT_MAX)
        return;
    (void)buf_reserve(&c->replay, total);
    for (int i = 0; i < n; i++)
        buf_add(&c->replay, iov[i].iov_base, iov[i].iov_len);
}

/* Keeps a request for a different node of the fleet as it came: a later try may go elsewhere. */
static void keep_hop(struct conn *c, struct str head, struct str body)
{
    buf_add_str(&c->replay, head);
    buf_add_str(&c->replay, body);
}

/* Logs the upstream that could not be reached. Returns -1; 0 for a different node of the fleet:
 * relay_pump decides then. */
static int unavailable(struct conn *c, const struct err *e)
{
    if (c->hops) {
        c->unsent = true;
        return 0;
    }
    hub_blame_worker(c->hub, c->session, c->link ? (int)c->link->upstream : -1, e->text);
    return -1;
}

/* Sends the first bytes of a request. An idle link that died unseen refuses them whole: then
 * nothing is lost, and they go out on a new one. */
static int send_first(struct conn *c, int upstream, struct iovec *iov, int n, struct err *e)
{
    c->link = take_link(c, upstream, false, e);
    if (c->link == NULL)
        return unavailable(c, e);
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
        return unavailable(c, e);
    upload_write(c, iov, n);
    return 0;
}

/* The value of HTTP1_FORWARDED_BY for a request to the upstream, or nothing. A gateway names its
 * own workers to its peer; in a fleet it names itself. `rollgate route` keeps such a name and adds
 * itself. */
static struct str name_forwarder(const struct conn *c, int upstream, char text[HEADS_HOST_MAX])
{
    const struct upstreams *u = c->hub->upstreams;
    struct str before = http1_known(c->hub->head, HTTP1_FORWARDED);
    int n;

    if (c->hops)
        return upstreams_own_name(u, text);
    if (upstreams_is_peer(upstream))
        return upstreams_own_range(u, text);
    if (c->hub->config->upstream.n == 0 || !upstreams_is_remote(u, upstream))
        return (struct str){0};
    n = snprintf(text, HEADS_HOST_MAX, "%.*s%s" HTTP1_ROUTE,
                 (int)MIN_OF(before.len, (size_t)UPSTREAMS_RANGE_TEXT), before.p ? before.p : "",
                 before.len > 0 ? ", " : "");
    return str_of(text, (size_t)n);
}

/* What could not be sent at once waits in c->up. */
int relay_start(struct conn *c, int upstream, struct str head, struct str body, struct err *e)
{
    struct iovec iov[HEADS_IOV];
    char extra[HEADS_EXTRA], forwarder[HEADS_HOST_MAX];
    int n;

    c->hops = upstreams_is_node(c->hub->upstreams, upstream);
    c->unsent = false;
    if (c->hops) {
        keep_hop(c, head, body);
        metrics_count(c->hub->page, METRIC_fleet_forwarded, 1);
    }
    /* A head with all the headers that there may be has no room for one of ours. */
    c->confirms = upstreams_confirmed(c->hub->upstreams, upstream) &&
                  c->hub->head->n + (c->tls ? 1 : 0) < HTTP1_HEADERS_MAX;
    n = heads_request(c->hub->head,
                      &(struct heads_request){
                          .confirms = c->confirms,
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
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, body.len);
    return send_first(c, upstream, iov, n, e);
}

/* A different node of the fleet did not take the request, or was lost with it. The request is kept
 * for a later try, or was too long for that: the client sends it again. */
static enum verdict end_hop(struct conn *c, struct err *e)
{
    hub_blame_worker(c->hub, c->session, c->link ? (int)c->link->upstream : -1,
                     "the node that owns a place did not serve a request");
    if (c->link) {
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

/* The link ended before any byte of an answer, and the worker cannot have acted on the request.
 * Sends it once more on a new link, if it was kept. VERDICT_REFUSE: it cannot be. */
static enum verdict send_again(struct conn *c, struct err *e)
{
    struct buf request = c->replay;
    int upstream = c->any ? -1 : (int)c->link->upstream;
    struct iovec iov = {.iov_base = request.p, .iov_len = request.len};

    if (request.len == 0 || c->answer == ANSWER_INTERIM || c->resent) {
        (void)unavailable(c, e);
        return VERDICT_REFUSE;
    }
    c->resent = true;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    flow_clear(&c->up);
    c->upload = UPLOAD_FLOWS;
    c->link = take_link(c, upstream, true, e);
    if (c->link == NULL) {
        (void)unavailable(c, e);
        return VERDICT_REFUSE;
    }
    upload_write(c, &iov, 1);
    if (c->up.done)
        return VERDICT_WAIT;
    c->in_seen = 0; /* the rest of it may lie here already */
    return VERDICT_AGAIN;
}

/* ------------------------------------------------------------------ turns */

/* The client has --send-timeout to take some of what is parked. That it says something meanwhile
 * moves nothing: a byte now and then would keep an answer here that nobody reads. */
static void await_reader(struct conn *c)
{
    bool same = c->stuck && c->stuck_at == c->down.given_bytes;

    c->stuck = true;
    c->stuck_at = c->down.given_bytes;
    if (!same)
        conn_set_deadline(c, (uint64_t)c->hub->config->send_timeout_ms);
}

/* Who is waited for now, and how long. */
static void set_deadline(struct conn *c)
{
    bool waits = !c->up.done && c->upload == UPLOAD_FLOWS && !flow_parked(&c->up);
    uint64_t body_ms = waits ? bodies_patience_ms(c) : 0;

    c->body_waits = waits;
    if (flow_parked(&c->down) || c->farewell) {
        await_reader(c);
        return;
    }
    c->stuck = false;
    if (waits)
        conn_set_deadline(c, body_ms);
    else
        conn_no_deadline(c);
}

bool relay_owes(const struct conn *c)
{
    return c->finishes && c->state == CONN_RELAY && c->link != NULL && c->upload == UPLOAD_FLOWS &&
           c->up.done && flow_parked(&c->up);
}

/* The request's way up, then the answer's way down. */
static enum verdict pump_both(struct conn *c, size_t *budget, struct err *e)
{
    enum verdict v = bodies_refused(c, e) ? upload_refuse(c) : upload_pump(c, budget, e);

    if (c->up.done)
        conn_forget_body(c);
    if (v == VERDICT_CLOSE || v == VERDICT_REFUSE)
        return v;
    if (c->hup && c->up.done && c->link != NULL && !c->down.done && !relay_owes(c))
        return VERDICT_CLOSE; /* it asked and left: nobody waits for the answer */
    v = answer_pump(c, budget, e);
    if (v == VERDICT_LOST && c->hops)
        return end_hop(c, e);
    return v == VERDICT_LOST ? send_again(c, e) : v;
}

/* Both directions, until neither can go on. */
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

/* The link is ready, or has ended. */
static void on_link(struct link *link, unsigned events)
{
    struct conn *c = link->owner;
    struct err e;
    bool failed = link->state == LINK_CONNECTING && (events & LOOP_ERR);

    CHECK(c->link == link);
    if (failed) {
        link_close(link);
        c->link = NULL;
        err_set(&e, ERR_WORKER_UNAVAILABLE, "the session-worker cannot be reached");
        if (c->any && ++c->tries < TRIES_MAX)
            c->link = take_link(c, -1, true, &e);
        if (c->link == NULL && unavailable(c, &e) != 0)
            conn_fail(c, &e);
    }
    c->hub->run(c);
}
