#include "router/relay.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "router/answer.h"
#include "router/bodies.h"
#include "router/heads.h"
#include "router/upload.h"

enum {
    REPLAY_MAX = 16 * 1024, /* larger requests are not kept for a second try */
    TRIES_MAX = 3,
    LOGGED_PER_SECOND = 5
};

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

void relay_blame_worker(const struct conn *c, const char *what)
{
    static struct log_limit limit;
    struct log_scope scope = {.session = str_cstr(c->session)};
    unsigned dropped;

    metrics_count(c->hub->page, METRIC_upstream_errors, 1);
    if (log_limit_pass(&limit, LOGGED_PER_SECOND, &dropped))
        log_warn(&scope, what, LOG_I("upstream", c->link ? (int)c->link->upstream : -1),
                 LOG_U("suppressed", dropped));
}

void relay_unavailable(struct conn *c, const struct err *e)
{
    relay_blame_worker(c, e->text);
    conn_fail(c, e);
}

/* Keeps a copy of a request while a second try is possible. */
static void keep_replay(struct conn *c, const struct iovec *iov, int n)
{
    uint64_t total = c->up.body == HTTP1_LENGTH ? c->up.left_bytes : 0; /* still to come */

    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total > REPLAY_MAX)
        return;
    (void)buf_reserve(&c->replay, total);
    for (int i = 0; i < n; i++)
        buf_add(&c->replay, iov[i].iov_base, iov[i].iov_len);
}

void relay_keep_more(struct conn *c, const struct iovec *iov)
{
    if (c->replay.len == 0)
        return;
    if (c->replay.len + iov->iov_len > REPLAY_MAX)
        buf_done(&c->replay);
    else
        buf_add(&c->replay, iov->iov_base, iov->iov_len);
}

/* Sends the first bytes of a request. An idle link that died unseen refuses them whole: then
 * nothing is lost, and they go out on a new one. */
static void send_first(struct conn *c, int upstream, struct iovec *iov, int n)
{
    struct err e;

    c->link = take_link(c, upstream, false, &e);
    if (c->link == NULL) {
        relay_unavailable(c, &e);
        return;
    }
    keep_replay(c, iov, n);
    upload_write(c, iov, n);
    if (!c->up_broken || !c->link->reused)
        return;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    c->up_broken = false;
    c->link = take_link(c, upstream, true, &e);
    if (c->link == NULL)
        relay_unavailable(c, &e);
    else
        upload_write(c, iov, n);
}

void relay_start(struct conn *c, int upstream, struct str body)
{
    struct iovec iov[HEADS_IOV];
    char extra[HEADS_EXTRA];
    int n;

    /* A head with all the headers that there may be has no room for one of ours. */
    c->confirms =
        upstreams_confirmed(c->hub->upstreams, upstream) && c->hub->head->n < HTTP1_HEADERS_MAX;
    n = heads_request(c->hub->head, c->confirms, body, extra, iov);
    c->state = CONN_RELAY;
    c->any = upstream < 0;
    flow_begin(&c->down, HTTP1_UNTIL_CLOSE, 0);
    c->down.done = false;
    conn_no_deadline(c);
    c->body_left_ms = (uint64_t)c->hub->config->body_timeout_ms;
    c->body_waits = false;
    c->body_fresh_bytes = 0;
    if (!c->up.done)
        bodies_take(c, body.len);
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, body.len);
    send_first(c, upstream, iov, n);
}

static void run_again(struct loop_task *t)
{
    conn_run(CONTAINER_OF(t, struct conn, task));
}

bool relay_resend(struct conn *c)
{
    struct buf request = c->replay;
    int upstream = c->any ? -1 : (int)c->link->upstream;
    struct iovec iov = {.iov_base = request.p, .iov_len = request.len};
    struct err e;

    if (request.len == 0 || c->interim || c->resent)
        return false;
    c->resent = true;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    flow_clear(&c->up);
    c->up_broken = c->handed_back = false;
    c->link = take_link(c, upstream, true, &e);
    if (c->link == NULL) {
        relay_unavailable(c, &e);
        return true;
    }
    upload_write(c, &iov, 1);
    if (!c->up.done) { /* the rest of it may lie here already */
        c->in_seen = 0;
        loop_task_post(c->hub->loop, &c->task, run_again);
    }
    return true;
}

/* ------------------------------------------------------------------ turns */

/* Who is waited for now, and how long. */
static void set_deadline(struct conn *c)
{
    const struct config *config = c->hub->config;
    bool waits = !c->up.done && !c->up_broken && !flow_parked(&c->up) && c->piped_bytes == 0;
    uint64_t body_ms = waits ? bodies_patience_ms(c) : 0;

    c->body_waits = waits;
    if (flow_parked(&c->down))
        conn_set_deadline(c, (uint64_t)config->send_timeout_ms);
    else if (waits)
        conn_set_deadline(c, body_ms);
    else
        conn_no_deadline(c);
}

void relay_pump(struct conn *c)
{
    size_t budget = HUB_TURN_BYTES;

    if (!bodies_refuse(c))
        upload_pump(c, &budget);
    if (c->up.done)
        bodies_forget(c);
    if (c->state == CONN_RELAY && c->hup && c->up.done && c->link != NULL && !c->down.done) {
        conn_close(c); /* it asked and left: nobody waits for the answer */
        return;
    }
    answer_pump(c, &budget);
    if (c->state != CONN_RELAY)
        return;
    if (budget == 0)
        loop_task_post(c->hub->loop, &c->task, run_again);
    set_deadline(c);
}

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
        if (c->link == NULL)
            relay_unavailable(c, &e);
    }
    conn_run(c);
}
