/* conn_set_state alone changes the state. check_conn checks the invariants of the new state in
 * builds with checks. A closed connection is freed in the next turn, so callers up the stack may
 * still use it. */

#include "router/conn.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/net/tls.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/callers.h"
#include "router/client_tls.h"
#include "router/hub.h"
#include "router/reply.h"
#include "router/upstreams.h"

enum {
    LINGER_MS = 2000,
    GATHERERS_MAX = 64 /* connections of a router, which bounds the unread bytes in sockets */
};

/* ------------------------------------------------------------------ states */

#ifndef NDEBUG
/* Checks that nothing of an exchange is left between two exchanges. */
static void check_rest(const struct conn *c)
{
    CHECK(!c->link);
    CHECK(c->body_bytes == 0);
    if (c->state != CONN_HEAD)
        return;
    CHECK(c->upload == UPLOAD_NONE && c->answer == ANSWER_NONE);
    CHECK(!flow_parked(&c->up) && !flow_parked(&c->down));
}

/* Checks that an exchange has a request, and a worker or an answer. */
static void check_exchange(const struct conn *c)
{
    CHECK(c->upload != UPLOAD_NONE);
    CHECK(c->upload == UPLOAD_FLOWS || c->link || conn_answered(c));
}

/* Checks what must hold whenever a state is entered. */
static void check_conn(const struct conn *c)
{
    if (c->state == CONN_RELAY)
        check_exchange(c);
    else
        check_rest(c);
    if (c->up.piped_bytes > 0) /* the pipe leads to a worker */
        CHECK(c->link);
    CHECK(c->replay.len == 0 || !conn_answered(c)); /* kept only for a second try */
}
#else
static void check_conn(const struct conn *c)
{
    (void)c;
}
#endif

void conn_set_state(struct conn *c, enum conn_state state)
{
    static const unsigned from[] = {
        [CONN_HEAD] = 1u << CONN_RELAY | 1u << CONN_LENT | 1u << CONN_HELD,
        [CONN_RELAY] = 1u << CONN_HEAD | 1u << CONN_RELAY, /* our answer replaces the worker's */
        [CONN_HELD] = 1u << CONN_HEAD | 1u << CONN_RELAY,
        [CONN_LINGER] = 1u << CONN_HEAD | 1u << CONN_RELAY, /* a failed handshake */
        [CONN_LENT] = 1u << CONN_HEAD,
        [CONN_CLOSED] = 1u << CONN_HEAD | 1u << CONN_RELAY | 1u << CONN_HELD | 1u << CONN_LINGER |
                        1u << CONN_LENT,
    };

    CHECK(from[state] & 1u << c->state);
    c->state = state;
    check_conn(c);
}

/* ------------------------------------------------------------------ turns and deadlines */

static void run_again(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, task);

    c->hub->run(c);
}

void conn_again(struct conn *c)
{
    loop_task_post(c->hub->loop, &c->task, run_again);
}

void conn_want_out(struct conn *c)
{
    loop_mod(c->hub->loop, &c->io, LOOP_IN | LOOP_RDHUP | LOOP_OUT);
}

ssize_t conn_read(struct conn *c, void *to, size_t size)
{
    return c->tls ? client_tls_read(c, to, size) : recv(c->fd, to, size, 0);
}

/* Handles the timer. If the deadline was moved meanwhile, sets the timer again. */
static void on_timer(struct loop_timer *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn, timer);
    uint64_t now_ms = loop_now_ms(c->hub->loop);

    if (c->deadline_ms == UINT64_MAX)
        return;
    if (now_ms < c->deadline_ms) {
        loop_timer_set(c->hub->loop, &c->timer, c->deadline_ms - now_ms, on_timer);
        return;
    }
    c->late = true;
    c->hub->run(c);
}

/* Moving a deadline to a later time needs no timer operation. */
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

/* ------------------------------------------------------------------ life */

void conn_known(struct conn *c)
{
    list_remove(&c->stranger);
}

void conn_not_lent(struct conn *c)
{
    if (!c->lent.place)
        return;
    *c->lent.place = NULL;
    c->lent.place = NULL;
    metrics_move_at(c->hub->page, METRIC_connections_lent, 0, -1);
}

void conn_not_held(struct conn *c)
{
    if (!list_holds(&c->hold.item))
        return;
    list_remove(&c->hold.item);
    metrics_move_at(c->hub->page, METRIC_fleet_held, 0, -1);
}

void conn_unwatch(struct conn *c)
{
    c->lent.ever = true;
    loop_del(c->hub->loop, &c->io);
}

int conn_watch(struct conn *c, struct err *e)
{
    return loop_add(c->hub->loop, &c->io, c->fd, LOOP_IN | LOOP_RDHUP, c->on_client, e);
}

struct conn *conn_open(struct hub *h, int fd, struct str address, loop_io_fn on_client)
{
    struct conn *c = mem_zalloc(sizeof(*c));

    c->hub = h;
    c->fd = fd;
    flow_init(&c->up);
    flow_init(&c->down);
    c->deadline_ms = UINT64_MAX;
    list_prepend(&h->conns, &c->item);
    h->conn_count++;
    c->address = callers_join(&h->callers, address);
    list_append(&h->strangers, &c->stranger);
    upstreams_keep_above(h->upstreams, fd);
    metrics_move_at(h->page, METRIC_connections, 0, 1);
    metrics_count(h->page, METRIC_connections_accepted, 1);
    c->on_client = on_client;
    if (conn_watch(c, NULL) != 0) {
        conn_close(c);
        return NULL;
    }
    return c;
}

void conn_forget_body(struct conn *c)
{
    c->address->body_bytes -= c->body_bytes;
    if (c->key)
        c->key->body_bytes -= c->body_bytes;
    c->body_bytes = 0;
}

static void free_conn(struct loop_task *t)
{
    free(CONTAINER_OF(t, struct conn, task));
}

/* If the kernel refuses, events arrive for every byte. */
void conn_gather(struct conn *c, bool on)
{
    int bytes = on ? CONN_GATHER_BYTES : 1;

    if (c->gathers == on || (on && c->hub->gatherers >= GATHERERS_MAX))
        return;
    if (setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) != 0 && on)
        return;
    c->gathers = on;
    c->hub->gatherers += on ? 1 : -1;
    c->address->gatherers += on ? 1 : -1;
    if (c->key)
        c->key->gatherers += on ? 1 : -1;
}

static void put_pipe(struct hub *h, struct flow *f)
{
    if (f->pipe[0] >= 0)
        hub_put_pipe(h, f->pipe, f->piped_bytes == 0);
    f->piped_bytes = 0;
}

/* Releases what an exchange has: link, pipes, kept bytes, counts. */
static void end_exchange(struct conn *c)
{
    conn_gather(c, false);
    conn_forget_body(c);
    c->over_budget = NULL;
    if (c->link != NULL)
        link_close(c->link);
    c->link = NULL;
    list_remove(&c->hold.hop);
    put_pipe(c->hub, &c->up);
    put_pipe(c->hub, &c->down);
    buf_done(&c->replay);
    buf_done(&c->partial);
}

void conn_unread(struct conn *c)
{
    struct buf request = c->replay;

    buf_add_str(&request, buf_str(&c->in));
    buf_done(&c->in);
    c->in = request;
    c->in_seen = 0;
    c->replay = (struct buf){0};
    end_exchange(c);
    flow_clear(&c->up);
    flow_clear(&c->down);
    c->upload = UPLOAD_NONE;
    c->answer = ANSWER_NONE;
}

void conn_close(struct conn *c)
{
    struct hub *h = c->hub;
    bool shaken;

    if (c->state == CONN_CLOSED)
        return;
    if (c->tls && client_tls_ready(c) && c->state == CONN_HEAD)
        (void)client_tls_end(c); /* within an answer the client must see that it is cut */
    end_exchange(c);
    conn_set_state(c, CONN_CLOSED);
    shaken = client_tls_free(c);
    conn_known(c);
    callers_leave(&h->callers, c->address);
    callers_leave(&h->callers, c->key);
    flow_clear(&c->up);
    flow_clear(&c->down);
    buf_done(&c->in);
    buf_done(&c->lent.head);
    conn_not_lent(c);
    conn_not_held(c);
    loop_timer_stop(h->loop, &c->timer);
    if (c->lent.ever || shaken)
        loop_del(h->loop, &c->io);
    else
        loop_forget(h->loop, &c->io);
    if (shaken)
        shutdown(c->fd, SHUT_RDWR); /* the end of the handshake's job closes the descriptor */
    else
        close(c->fd);
    list_remove(&c->item);
    h->conn_count--;
    h->refused -= c->refused;
    metrics_move_at(h->page, METRIC_connections, 0, -1);
    loop_task_cancel(h->loop, &c->task);
    loop_task_post(h->loop, &c->task, free_conn);
    if (h->draining && h->conn_count == 0 && h->on_empty)
        h->on_empty(h);
}

/* ------------------------------------------------------------------ the end of an exchange */

void conn_linger(struct conn *c)
{
    shutdown(c->fd, SHUT_WR);
    conn_set_state(c, CONN_LINGER);
    c->readable = true;
    conn_set_deadline(c, LINGER_MS);
}

/* Makes the close a reset. If the end of the connection is the end of the body, only a reset shows
 * that the body is incomplete. */
static void reset_on_close(const struct conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

bool conn_ends(const struct conn *c)
{
    return c->closing || !c->up.done || c->hup || c->hub->draining;
}

void conn_finish(struct conn *c)
{
    end_exchange(c);
    flow_clear(&c->down);
    flow_clear(&c->up);
    metrics_count_at(c->hub->page, METRIC_routed, metrics_status(c->status), 0, 1);
    if (c->answer == ANSWER_CUT) {
        if (c->old || c->down.body == HTTP1_UNTIL_CLOSE)
            reset_on_close(c);
        conn_close(c);
        return;
    }
    if (conn_ends(c)) {
        if (!c->up.done || c->in.len > 0) {
            conn_linger(c);
        } else {
            /* A close with unread bytes drops what the kernel still keeps of the answer, so our
             * direction ends first. */
            shutdown(c->fd, SHUT_WR);
            conn_close(c);
        }
        return;
    }
    c->upload = UPLOAD_NONE;
    c->answer = ANSWER_NONE;
    conn_set_state(c, CONN_HEAD);
    c->in_seen = 0;
    c->tries = 0;
    c->resent = false;
    c->hold.until_ms = 0;
    c->hold.over = false;
    conn_set_deadline(c, (uint64_t)c->hub->config->idle_timeout_ms);
}

void conn_fail(struct conn *c, const struct err *e)
{
    char id[HUB_REQUEST_ID_MAX];
    struct reply_to to = {.head = c->head_request,
                          .old = c->old,
                          .messages_dialect = c->messages_dialect,
                          .session = str_cstr(c->session),
                          .request_id = hub_request_id(c->hub, id)};

    if (c->state == CONN_HEAD) {
        /* The start of the next request is unknown. */
        flow_begin(&c->up, HTTP1_UNTIL_CLOSE, 0);
        c->closing = true;
    }
    if (!c->up.done || c->hub->draining)
        c->closing = true;
    to.close = c->closing;
    end_exchange(c);
    flow_clear(&c->up);
    flow_clear(&c->down);
    if (c->tls)
        tls_abandon(c->down.tls);
    flow_begin(&c->down, HTTP1_NO_BODY, 0);
    c->stuck = false; /* bytes that are parked from now on are a different answer */
    reply_error(&c->down.parked, &to, e);
    c->status = err_status(e);
    c->upload = UPLOAD_ENDED;
    c->answer = ANSWER_BEGUN;
    conn_set_state(c, CONN_RELAY);
    metrics_count_at(c->hub->page, METRIC_http_refused, metrics_status(c->status), 0, 1);
}
