/* Connections from accept to close (clients.h): reading heads, deciding about them, and the
 * turns of an exchange. run() is the one function that goes on with a connection, whatever has
 * happened; it asks the connection's state what there is to do and stops when nothing is, or
 * when the turn's share is used up.
 *
 *   idle -> head arrives -> route, gate -> local answer, refusal or exchange
 *   exchange -> run_exchange (relay_pump) -> finished -> idle again, lingering, or closed
 *
 * A router that drains leaves connections a moment (patience_ms) in which a request that is on
 * its way may still arrive; its answer then closes the connection. */

#include "router/clients.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "router/client_tls.h"
#include "router/conn_request.h"
#include "router/holds.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/relay.h"

enum { FIRST_REQUEST_MS = 500, NEXT_REQUEST_MS = 5000, IN_READ = 16 * 1024 };

/* ------------------------------------------------------------------ heads */

/* Reads from the client: bytes, 0 when there are none now, -1 when it is gone (c is closed). */
static ssize_t read_client(struct conn *c, char *to, size_t size)
{
    ssize_t n;

    do
        n = conn_read(c, to, size);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return 0;
    }
    if (n <= 0) {
        conn_close(c);
        return -1;
    }
    if ((size_t)n < size && !c->hup && !c->tls)
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

    c->head_request = str_starts(str_trim(bytes), STR("HEAD ")); /* also of one that fails */
    if (r == 1)
        used = conn_begin_request(c, bytes);
    else if (r < 0)
        conn_fail(c, &e);
    if (c->state == CONN_CLOSED)
        return;
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

    if (c->tls && !client_tls_ready(c))
        return client_tls_shake(c);
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

/* ------------------------------------------------------------------ turns */

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
    conn_again(c);
}

/* The deadline has passed: whoever is waited for hears of it, if that is the client. */
static void too_slow(struct conn *c)
{
    struct err e;
    bool partial_head = c->state == CONN_HEAD && c->in.len > 0;
    bool waits_for_body = c->state == CONN_RELAY && !conn_answered(c) && !c->up.done;

    c->late = false;
    if (c->state == CONN_HELD) {
        holds_end(c);
        c->hold.over = true;
        return;
    }
    if (waits_for_body && c->gathers) {
        conn_gather(c, false);
        c->body_trickles = true;
        c->stuck = false;   /* its deadline is over, and is set anew */
        c->readable = true; /* what has come is looked for before anybody is late */
        return;
    }
    if (c->state == CONN_HEAD && c->tls && !client_tls_ready(c)) {
        client_tls_expire(c);
        return;
    }
    if (!partial_head && !waits_for_body) {
        conn_close(c);
        return;
    }
    err_set(&e, ERR_STALLED, "the request's %s did not arrive in time",
            partial_head ? "head" : "body");
    conn_fail(c, &e);
}

/* Moves what can be moved of the exchange. Returns whether there may be more to do now. */
static bool run_exchange(struct conn *c)
{
    struct err e;

    switch (relay_pump(c, &e)) {
    case VERDICT_OVER:
        conn_finish(c);
        return c->state != CONN_HEAD || !lendings_lend(c);
    case VERDICT_REFUSE:
    case VERDICT_LOST:
        conn_fail(c, &e);
        return true;
    case VERDICT_HOLD:
        if (!holds_may_hold(c)) {
            err_set(&e, ERR_NO_OWNER, "no node serves the place of this request now");
            conn_fail(c, &e);
            return true;
        }
        holds_begin(c, c->hold.place);
        return false;
    case VERDICT_CLOSE:
        conn_close(c);
        return false;
    case VERDICT_AGAIN:
        conn_again(c);
        return false;
    case VERDICT_MORE:
        return true;
    case VERDICT_WAIT:
    default:
        return false;
    }
}

/* Whether the client of a held request waits for its answer. A call that --on-disconnect finishes
 * needs no client. */
static bool is_awaited(const struct conn *c)
{
    return !c->hup || !c->up.done || c->finishes;
}

/* Goes on with whatever can be done now: hub->run. */
static void run(struct conn *c)
{
    unsigned head_reads = 0;
    bool more = true;

    if (c->late && c->state != CONN_CLOSED)
        too_slow(c);
    while (more) {
        switch (c->state) {
        case CONN_HEAD:
            more = read_head(c);
            if (more && c->tls && ++head_reads == HUB_TLS_HEAD_READS) {
                conn_again(c);
                return;
            }
            break;
        case CONN_RELAY:
            more = run_exchange(c);
            break;
        case CONN_LINGER:
            linger_on(c);
            return;
        case CONN_HELD:
            if (!is_awaited(c))
                conn_close(c);
            return;
        case CONN_LENT:
        case CONN_CLOSED:
            return;
        }
    }
}

/* ------------------------------------------------------------------ life */

/* The client's socket is ready. */
static void on_client(struct loop_io *io, unsigned events)
{
    struct conn *c = CONTAINER_OF(io, struct conn, io);

    if (events & (LOOP_IN | LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->readable = true;
    if (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->hup = true;
    /* Both directions closed: nobody reads an answer. Otherwise relay_pump judges. */
    if (c->state == CONN_RELAY && (events & (LOOP_HUP | LOOP_ERR)) && !relay_owes(c))
        conn_close(c);
    else
        run(c);
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

/* While a router drains. */
static void close_idle(struct conn *c)
{
    if (c->state != CONN_HEAD || c->in.len > 0 || has_input(c))
        return;
    if (patience_ms(c) > 0)
        conn_set_deadline(c, patience_ms(c));
    else
        conn_close(c);
}

/* A worker has given it back. */
static void on_back(struct conn *c)
{
    run(c);
    if (c->hub->draining)
        close_idle(c);
}

void clients_init(struct hub *h)
{
    h->run = run;
    h->lendings = lendings_new(h, on_back);
    holds_init(h);
}

void clients_add(struct hub *h, int fd, struct str address)
{
    struct conn *c = conn_open(h, fd, address, on_client);

    if (c != NULL && h->tls != NULL && client_tls_open(c) == 0)
        conn_set_deadline(c, (uint64_t)h->config->header_timeout_ms);
    else if (c != NULL && h->tls == NULL)
        conn_set_deadline(c, (uint64_t)h->config->idle_timeout_ms);
}

/* Answers an error to a connection that was accepted only for that. */
void clients_refuse(struct hub *h, int fd, struct str address, const struct err *e)
{
    struct conn *c;

    if (h->tls != NULL) { /* a handshake for an error alone is what an attacker wants */
        close(fd);
        return;
    }
    c = conn_open(h, fd, address, on_client);
    if (c == NULL)
        return;
    c->refused = true;
    h->refused++;
    conn_known(c); /* it has no place to leave to others */
    conn_fail(c, e);
    run(c);
}

/* Closes the oldest connection of which no request has passed the gate; false: there is none. */
bool clients_make_room(struct hub *h)
{
    struct conn *oldest = LIST_FIRST_OF(&h->strangers, struct conn, stranger);

    if (!oldest)
        return false;
    metrics_count(h->page, METRIC_connections_dropped, 1);
    conn_close(oldest);
    return true;
}

/* When a router drains. */
void clients_close_idle(struct hub *h)
{
    struct conn *c, *next;

    lendings_recall(h->lendings);
    holds_end_all(h);
    LIST_EACH_SAFE(&h->conns, c, next, struct conn, item)
        close_idle(c);
}

void clients_close_all(struct hub *h)
{
    struct conn *c, *next;

    holds_done(h);
    LIST_EACH_SAFE(&h->conns, c, next, struct conn, item)
        conn_close(c);
}
