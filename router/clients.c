/* Reads heads, decides about requests, and runs the turns of an exchange. run_conn() alone
 * continues a connection after any event. It checks the connection's state for work, and stops when
 * there is none or the turn's share is used up. idle -> head arrives -> route, gate -> local
 * answer, refusal or exchange -> run_exchange (relay_pump) -> idle, lingering or closed. A draining
 * router keeps connections for patience_ms, in which a request in flight may still arrive. The
 * answer to that request closes the connection. */

#include "router/clients.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
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
#include "router/upstreams.h"

enum { FIRST_REQUEST_MS = 500, NEXT_REQUEST_MS = 5000, IN_READ = 16 * 1024 };

/* ------------------------------------------------------------------ heads */

/* Reads from the client. Returns the number of bytes, 0 if there are none now, and -1 after it has
 * closed c because the client is gone. */
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

/* Parses the head in `bytes`, which are in c->in or, if `fresh`, in the scratch. Unused bytes are
 * in c->in afterwards. */
static void try_head(struct conn *c, struct str bytes, bool fresh)
{
    struct err e;
    size_t used = 0;
    bool first = fresh || c->in_seen == 0;
    int r = http1_request(c->hub->head, bytes, fresh ? 0 : c->in_seen,
                          (size_t)c->hub->config->max_header_bytes, &e);

    c->head_request = str_starts(str_trim(bytes), STR("HEAD ")); /* also for a malformed head */
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

/* Reads and parses a request head. Returns whether more can be done now. */
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

/* Reads and drops the bytes of a lingering connection, at most HUB_TURN_BYTES a turn. */
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

/* Handles a passed deadline. A client that is late with a head or body gets an error; other
 * connections are closed. */
static void handle_timeout(struct conn *c)
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
    if (c->state == CONN_RELAY && c->offered && !conn_answered(c)) {
        relay_refuse_offer(c);
        return;
    }
    if (waits_for_body && c->gathers) {
        conn_gather(c, false);
        c->body_trickles = true;
        c->stuck = false;   /* its deadline has passed, and is set again */
        c->readable = true; /* received bytes count before the client is late */
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

/* Moves bytes of the exchange and acts on the verdict. Returns whether more can be done now. */
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

/* Reports whether the client of a held request still waits for its answer. A call that
 * --on-disconnect finishes needs no client. */
static bool is_awaited(const struct conn *c)
{
    return !c->hup || !c->up.done || c->finishes;
}

/* Does all that can be done now for the connection. It is hub->run. */
static void run_conn(struct conn *c)
{
    unsigned head_reads = 0;
    bool more = true;

    if (c->late && c->state != CONN_CLOSED)
        handle_timeout(c);
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

/* Handles an event of the client's socket. */
static void on_client(struct loop_io *io, unsigned events)
{
    struct conn *c = CONTAINER_OF(io, struct conn, io);

    if (events & (LOOP_IN | LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->readable = true;
    if (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR))
        c->hup = true;
    /* Both directions are closed: no answer can be read. In other cases relay_pump decides. */
    if (c->state == CONN_RELAY && (events & (LOOP_HUP | LOOP_ERR)) && !relay_owes(c))
        conn_close(c);
    else
        run_conn(c);
}

/* Reports whether bytes of the next request are in the socket. */
static bool has_input(const struct conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Returns the time in ms for which an idle connection stays open while the router drains. A client
 * loses a request that is in flight when we close. */
static uint64_t patience_ms(const struct conn *c)
{
    const struct heritage *h = c->hub->heritage;

    if (!atomic_load_explicit(&h->board->draining, memory_order_relaxed))
        return NEXT_REQUEST_MS; /* only this router ends: the time costs nothing */
    return c->status == 0 || h->port_kept ? FIRST_REQUEST_MS : 0;
}

/* Closes an idle connection of a draining router, at once or after patience_ms. */
static void close_idle(struct conn *c)
{
    if (c->state != CONN_HEAD || c->in.len > 0 || has_input(c))
        return;
    if (patience_ms(c) > 0)
        conn_set_deadline(c, patience_ms(c));
    else
        conn_close(c);
}

/* Continues a connection that a worker has returned. */
static void on_back(struct conn *c)
{
    run_conn(c);
    if (c->hub->draining)
        close_idle(c);
}

void clients_init(struct hub *h)
{
    h->run = run_conn;
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

void clients_refuse(struct hub *h, int fd, struct str address, const struct err *e)
{
    struct conn *c;

    if (h->tls != NULL) { /* an attacker wants handshakes: no handshake only for an error */
        close(fd);
        return;
    }
    c = conn_open(h, fd, address, on_client);
    if (c == NULL)
        return;
    c->refused = true;
    h->refused++;
    conn_known(c); /* it must not be closed in favour of others */
    conn_fail(c, e);
    run_conn(c);
}

bool clients_make_room(struct hub *h)
{
    struct conn *oldest = LIST_FIRST_OF(&h->strangers, struct conn, stranger);

    if (!oldest)
        return false;
    metrics_count(h->page, METRIC_connections_dropped, 1);
    conn_close(oldest);
    return true;
}

void clients_close_idle(struct hub *h)
{
    struct conn *c, *next;

    lendings_recall(h->lendings);
    holds_drain(h);
    LIST_EACH_SAFE(&h->conns, c, next, struct conn, item)
        close_idle(c);
}

bool clients_end_held(struct hub *h)
{
    bool some = !list_is_empty(&h->held);

    holds_end_all(h);
    return some;
}

/* Reports whether a process is ready that serves the upstream. True for other gateways. */
static bool is_served(const struct hub *h, int upstream)
{
    const struct board *b = h->heritage->board;
    int owner;

    if (h->heritage->config->upstream.n > 0 || upstreams_is_peer(upstream))
        return true;
    if (upstream == upstreams_dispatcher(h->upstreams))
        return board_ready(b, BOARD_DISPATCHER);
    owner = board_resolve(b, board_index(b, (uint32_t)upstream));
    return owner >= 0 && board_ready(b, BOARD_WORKER0 + (unsigned)owner);
}

void clients_close_unserved(struct hub *h)
{
    struct conn *c, *next;
    unsigned n = 0;

    LIST_EACH_SAFE(&h->conns, c, next, struct conn, item) {
        if (!c->link || is_served(h, (int)c->link->upstream))
            continue;
        conn_close(c);
        n++;
    }
    if (n)
        log_warn(NULL, "requests are cut off: the start failed before their worker was ready",
                 LOG_U("connections", n));
}

void clients_close_all(struct hub *h)
{
    struct conn *c, *next;

    holds_end_all(h);
    holds_done(h);
    LIST_EACH_SAFE(&h->conns, c, next, struct conn, item)
        conn_close(c);
}
