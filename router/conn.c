#include "router/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "router/bodies.h"
#include "router/gate.h"
#include "router/local.h"
#include "router/relay.h"
#include "router/reply.h"
#include "router/route.h"

enum { LINGER_MS = 2000, FIRST_REQUEST_MS = 500, NEXT_REQUEST_MS = 5000, IN_READ = 16 * 1024 };

/* ------------------------------------------------------------------ deadlines */

static void on_timer(struct loop_timer *t);

void conn_set_deadline(struct conn *c, uint64_t delay_ms)
{
    uint64_t at_ms = loop_now_ms(c->hub->loop) + delay_ms;

    c->deadline_ms = at_ms;
    if (loop_timer_due_ms(&c->timer) > at_ms)
        loop_timer_set(c->hub->loop, &c->timer, delay_ms, on_timer);
}

void conn_no_deadline(struct conn *c)
{
    c->deadline_ms = UINT64_MAX;
}

static void too_slow(struct conn *c)
{
    struct err e;
    bool partial_head = c->state == CONN_HEAD && c->in.len > 0;
    bool waits_for_body = c->state == CONN_RELAY && !c->answered && !c->up.done;

    if (!partial_head && !waits_for_body) {
        conn_close(c);
        return;
    }
    err_set(&e, ERR_STALLED, "the request's %s did not arrive in time",
            partial_head ? "head" : "body");
    conn_fail(c, &e);
    conn_run(c);
}

static void on_timer(struct loop_timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, timer);
    uint64_t now_ms = loop_now_ms(c->hub->loop);

    if (c->deadline_ms == UINT64_MAX)
        return;
    if (now_ms < c->deadline_ms)
        loop_timer_set(c->hub->loop, &c->timer, c->deadline_ms - now_ms, on_timer);
    else
        too_slow(c);
}

/* ------------------------------------------------------------------ life */

static void on_client(struct loop_io *io, unsigned events)
{
    struct conn *c = CONTAINER_OF(io, struct conn, io);

    if (events & (LOOP_IN | LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->readable = true;
    if (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->hup = true;
    /* Both directions closed: nobody reads an answer. Otherwise relay_pump judges. */
    if (c->state == CONN_RELAY && (events & (LOOP_HUP | LOOP_ERR)))
        conn_close(c);
    else
        conn_run(c);
}

static void add_stranger(struct conn *c)
{
    struct hub *h = c->hub;

    c->prev_stranger = h->last_stranger;
    if (h->last_stranger)
        h->last_stranger->next_stranger = c;
    else
        h->strangers = c;
    h->last_stranger = c;
}

static void forget_stranger(struct conn *c)
{
    struct hub *h = c->hub;

    if (c->known)
        return;
    if (c->prev_stranger)
        c->prev_stranger->next_stranger = c->next_stranger;
    else
        h->strangers = c->next_stranger;
    if (c->next_stranger)
        c->next_stranger->prev_stranger = c->prev_stranger;
    else
        h->last_stranger = c->prev_stranger;
    c->known = true;
}

bool conn_make_room(struct hub *h)
{
    if (!h->strangers)
        return false;
    metrics_count(h->page, METRIC_connections_dropped, 1);
    conn_close(h->strangers);
    return true;
}

static struct conn *conn_open(struct hub *h, int fd, struct str address)
{
    struct conn *c = mem_zalloc(sizeof(*c));

    c->hub = h;
    c->fd = fd;
    c->pipe[0] = c->pipe[1] = -1;
    c->next = h->conns;
    if (c->next != NULL)
        c->next->prev = c;
    h->conns = c;
    h->conn_count++;
    c->address = callers_join(&h->callers, address);
    add_stranger(c);
    upstreams_keep_above(h->upstreams, fd);
    metrics_move_at(h->page, METRIC_connections, 0, 1);
    metrics_count(h->page, METRIC_connections_accepted, 1);
    if (loop_add(h->loop, &c->io, fd, LOOP_IN | LOOP_RDHUP, on_client, NULL) != 0) {
        conn_close(c);
        return NULL;
    }
    return c;
}

void conn_new(struct hub *h, int fd, struct str address)
{
    struct conn *c = conn_open(h, fd, address);

    if (c != NULL)
        conn_set_deadline(c, (uint64_t)h->config->idle_timeout_ms);
}

void conn_refuse(struct hub *h, int fd, struct str address, const struct err *e)
{
    struct conn *c = conn_open(h, fd, address);

    if (c == NULL)
        return;
    conn_fail(c, e);
    conn_run(c);
}

static void free_conn(struct loop_task *t)
{
    free(CONTAINER_OF(t, struct conn, task));
}

static void end_exchange(struct conn *c)
{
    bodies_forget(c);
    c->over_budget = NULL;
    if (c->link != NULL)
        link_close(c->link);
    c->link = NULL;
    if (c->pipe[0] >= 0)
        hub_put_pipe(c->hub, c->pipe, c->piped_bytes == 0);
    c->piped_bytes = 0;
    buf_done(&c->replay);
    buf_done(&c->partial);
}

void conn_close(struct conn *c)
{
    struct hub *h = c->hub;

    if (c->state == CONN_CLOSED)
        return;
    c->state = CONN_CLOSED;
    end_exchange(c);
    forget_stranger(c);
    callers_leave(&h->callers, c->address);
    callers_leave(&h->callers, c->session_key);
    flow_clear(&c->up);
    flow_clear(&c->down);
    buf_done(&c->in);
    loop_timer_stop(h->loop, &c->timer);
    loop_forget(h->loop, &c->io);
    close(c->fd);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        h->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    h->conn_count--;
    metrics_move_at(h->page, METRIC_connections, 0, -1);
    loop_task_cancel(h->loop, &c->task);
    loop_task_post(h->loop, &c->task, free_conn);
    if (h->draining && h->conn_count == 0 && h->on_empty)
        h->on_empty(h);
}

/* Whether the next request already lies in the socket. */
static bool has_input(const struct conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* How long a connection without a request may still bring one, whose answer then ends it: a request
 * that is on the way when we close is lost to its client. */
static uint64_t patience_ms(const struct conn *c)
{
    const struct heritage *h = c->hub->heritage;

    if (!atomic_load_explicit(&h->board->draining, memory_order_relaxed))
        return NEXT_REQUEST_MS; /* only this router ends; nobody waits for it */
    return c->status == 0 || h->port_kept ? FIRST_REQUEST_MS : 0;
}

void conn_close_idle(struct hub *h)
{
    struct conn *next;

    for (struct conn *c = h->conns; c != NULL; c = next) {
        next = c->next;
        if (c->state != CONN_HEAD || c->in.len > 0 || has_input(c))
            continue;
        if (patience_ms(c) > 0)
            conn_set_deadline(c, patience_ms(c));
        else
            conn_close(c);
    }
}

/* ------------------------------------------------------------------ the end of an exchange */

static void linger(struct conn *c)
{
    shutdown(c->fd, SHUT_WR);
    c->state = CONN_LINGER;
    c->readable = true;
    conn_set_deadline(c, LINGER_MS);
}

static void run_next(struct loop_task *t)
{
    conn_run(CONTAINER_OF(t, struct conn, task));
}

/* Reads what nobody wants, a turn's share at a time. */
static void linger_on(struct conn *c)
{
    size_t budget = HUB_TURN_BYTES;

    while (budget > 0) {
        ssize_t n = recv(c->fd, c->hub->scratch, HUB_SCRATCH, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            conn_close(c);
            return;
        }
        budget -= (size_t)n < budget ? (size_t)n : budget;
    }
    loop_task_post(c->hub->loop, &c->task, run_next);
}

/* Where the end of the connection is the end of the body, only a reset tells that it is not. */
static void reset_on_close(const struct conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void conn_finish(struct conn *c)
{
    end_exchange(c);
    flow_clear(&c->down);
    flow_clear(&c->up);
    metrics_count_at(c->hub->page, METRIC_routed, metrics_status(c->status), 0, 1);
    if (c->truncated) {
        if (c->old || c->down.body == HTTP1_UNTIL_CLOSE)
            reset_on_close(c);
        conn_close(c);
        return;
    }
    if (c->closing || !c->up.done || c->hup || c->hub->draining) {
        if (!c->up.done || c->in.len > 0)
            linger(c);
        else
            conn_close(c);
        return;
    }
    c->state = CONN_HEAD;
    c->in_seen = 0;
    c->tries = 0;
    c->up_broken = c->interim = c->handed_back = c->answered = c->resent = false;
    conn_set_deadline(c, (uint64_t)c->hub->config->idle_timeout_ms);
}

void conn_fail(struct conn *c, const struct err *e)
{
    char id[HUB_REQUEST_ID_MAX];
    struct reply_to to = {.head = c->head_request && c->state == CONN_RELAY,
                          .old = c->old,
                          .messages_dialect = c->messages_dialect,
                          .session = str_cstr(c->session),
                          .request_id = hub_request_id(c->hub, id)};

    if (c->state == CONN_HEAD) {
        /* Where the next request would begin is not known. */
        flow_begin(&c->up, HTTP1_UNTIL_CLOSE, 0);
        c->closing = true;
    }
    if (!c->up.done || c->hub->draining)
        c->closing = true;
    to.close = c->closing;
    end_exchange(c);
    flow_clear(&c->up);
    flow_clear(&c->down);
    flow_begin(&c->down, HTTP1_NO_BODY, 0);
    reply_error(&c->down.parked, &to, e);
    c->status = err_status(e);
    c->answered = true;
    c->up_broken = true;
    c->state = CONN_RELAY;
    metrics_count_at(c->hub->page, METRIC_http_refused, metrics_status(c->status), 0, 1);
}

/* ------------------------------------------------------------------ heads */

/* What the rest of the exchange needs to know of the head, which is gone by then. */
static void keep_request(struct conn *c, const struct http1_head *h, const struct route *route)
{
    c->old = h->minor == 0;
    c->keep_alive = h->keep_alive;
    c->closing = !h->keep_alive || c->hub->draining;
    c->head_request = str_eq(h->method, STR("HEAD"));
    c->messages_dialect = route->messages;
    memcpy(c->session, route->session.p ? route->session.p : "", route->session.len);
    c->session[route->session.len] = 0;
    c->status = 0;
    c->truncated = false;
}

/* What the router refuses although the head is well-formed. */
static int check_request(const struct conn *c, const struct http1_head *h,
                         const struct route *route, struct err *e)
{
    uint64_t max = (uint64_t)c->hub->config->max_body_bytes;
    bool local =
        route->kind == ROUTE_HEALTH || route->kind == ROUTE_READY || route->kind == ROUTE_METRICS;

    if (!local && !c->hub->heritage->port_kept &&
        atomic_load_explicit(&c->hub->heritage->board->draining, memory_order_relaxed))
        return err_set(e, ERR_DRAINING, "the service is stopping");
    if ((h->body == HTTP1_LENGTH && h->length > max) || c->up.chunked.total_bytes > max)
        return err_set(e, ERR_BODY_TOO_LARGE, "the body is larger than %llu bytes",
                       (unsigned long long)max);
    if (h->at[HTTP1_HOST] == 0 && !local)
        return err_set(e, ERR_INVALID, "no Host header");
    if (http1_list_has(http1_known(h, HTTP1_UPGRADE), STR("websocket")))
        return err_set(e, ERR_UPGRADE, "this server speaks HTTP/1.1 only, no WebSocket");
    return local ? 0 : gate_check(c->hub, h, route, e);
}

/* Counts the connection under the session whose key it has proved. */
static int take_key(struct conn *c, const struct proof *proof, struct err *e)
{
    struct hub *h = c->hub;
    char text[CALLER_NAME_MAX];
    uint64_t max = (uint64_t)h->config->max_key_connections;
    struct str name;

    if (!gate_keys(h) || !proof->id.p)
        return 0;
    name = caller_of_session(proof->id, text);
    if (c->session_key && str_eq(name, str_of(c->session_key->name, c->session_key->name_len)))
        return 0;
    if (max > 0 && callers_connections(&h->callers, name) >= max) {
        metrics_count_at(h->page, METRIC_refusals, METRIC_REFUSAL_KEY_CONNECTIONS, 0, 1);
        return err_set(e, ERR_OVERLOADED,
                       "more than %llu connections with one session's keys "
                       "(--max-key-connections)",
                       (unsigned long long)max);
    }
    callers_leave(&h->callers, c->session_key);
    c->session_key = callers_join(&h->callers, name);
    return 0;
}

/* What a request that goes to a worker counts under. */
static int take_caller(struct conn *c, const struct route *route, struct err *e)
{
    if (route->kind != ROUTE_ANY && route->kind != ROUTE_WORKER)
        return 0;
    if (take_key(c, &route->proof, e) != 0)
        return -1;
    forget_stranger(c);
    return 0;
}

static void start_exchange(struct conn *c, const struct route *route, struct str body)
{
    int upstream = -1;

    if (route->kind == ROUTE_HEALTH || route->kind == ROUTE_READY || route->kind == ROUTE_METRICS) {
        local_answer(c, c->hub->head, route->kind);
        return;
    }
    if (route->kind == ROUTE_WORKER)
        upstream = upstreams_find(c->hub->upstreams, route->index);
    else if (route->kind == ROUTE_DISPATCHER)
        upstream = upstreams_dispatcher(c->hub->upstreams);
    if (upstream < 0 && (route->named || route->kind == ROUTE_WORKER))
        metrics_count(c->hub->page, METRIC_fallbacks, 1);
    relay_start(c, upstream, body);
}

/* The head is complete at the start of `bytes`. Returns how many of them are used up. */
static size_t begin_request(struct conn *c, struct str bytes)
{
    const struct http1_head *h = c->hub->head;
    struct str rest = str_sub(bytes, h->len_bytes, bytes.len);
    struct route route;
    struct err e;
    size_t used, pass;
    int r, shown;

    shown = route_find(h, gate_keys(c->hub), &route, &e);
    keep_request(c, h, &route);
    flow_begin(&c->up, h->body, h->length);
    r = flow_take(&c->up, rest, &used, &pass, shown == 0 ? &e : NULL);
    if (r == 0)
        r = shown == 0 ? check_request(c, h, &route, &e) : shown;
    if (r == 0)
        r = take_caller(c, &route, &e);
    if (r == 0)
        start_exchange(c, &route, str_sub(rest, 0, pass));
    else
        conn_fail(c, &e);
    return h->len_bytes + used;
}

/* Reads from the client: bytes, 0 when there are none now, -1 when it is gone (c is closed). */
static ssize_t read_client(struct conn *c, char *to, size_t size)
{
    ssize_t n;

    do
        n = recv(c->fd, to, size, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return 0;
    }
    if (n <= 0) {
        conn_close(c);
        return -1;
    }
    if ((size_t)n < size && !c->hup)
        c->readable = false;
    return n;
}

/* A look at the head in `bytes`, which lie in c->in or (fresh) in the scratch. Whatever is not used
 * up then stands in c->in. */
static void try_head(struct conn *c, struct str bytes, bool fresh)
{
    struct err e;
    size_t used = 0;
    bool first = fresh || c->in_seen == 0;
    int r = http1_request(c->hub->head, bytes, fresh ? 0 : c->in_seen,
                          (size_t)c->hub->config->max_header_bytes, &e);

    if (r == 1)
        used = begin_request(c, bytes);
    else if (r < 0)
        conn_fail(c, &e);
    if (fresh)
        buf_add(&c->in, bytes.p + used, bytes.len - used);
    else
        buf_consume(&c->in, used);
    c->in_seen = r == 0 ? c->in.len : 0;
    if (r == 0 && first)
        conn_set_deadline(c, (uint64_t)c->hub->config->header_timeout_ms);
    if (c->in.len == 0 && c->in.cap > 0)
        buf_done(&c->in);
}

/* Returns whether there may be more to do now. */
static bool read_head(struct conn *c)
{
    ssize_t n;

    if (c->in.len > c->in_seen) { /* pipelined */
        try_head(c, buf_str(&c->in), false);
        return true;
    }
    if (!c->readable)
        return false;
    if (c->in.len == 0) {
        n = read_client(c, c->hub->scratch, HUB_HEAD_READ);
        if (n > 0)
            try_head(c, str_of(c->hub->scratch, (size_t)n), true);
        return n > 0;
    }
    n = read_client(c, buf_reserve(&c->in, IN_READ), IN_READ);
    if (n > 0) {
        c->in.len += (size_t)n;
        try_head(c, buf_str(&c->in), false);
    }
    return n > 0;
}

void conn_run(struct conn *c)
{
    for (;;) {
        switch (c->state) {
        case CONN_HEAD:
            if (!read_head(c))
                return;
            break;
        case CONN_RELAY:
            relay_pump(c);
            if (c->state == CONN_RELAY)
                return;
            break;
        case CONN_LINGER:
            linger_on(c);
            return;
        case CONN_CLOSED:
            return;
        }
    }
}
