/* Connections of the HTTP client (http_conn.h): connecting over all addresses of a name, TLS,
 * reading and writing. An event on a connection may close it; `inside` counts running callbacks,
 * and the last one to leave frees it.
 *
 *   CONNECTING -> (SHAKING) -> OPEN -> CLOSED */

#include "common/net/http_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"

enum { NAME_DUE_MS = 20 };

static void on_socket(struct loop_io *io, unsigned events);

void http_conn_enter(struct http_conn *n)
{
    n->inside++;
}

void http_conn_leave(struct http_conn *n)
{
    if (--n->inside > 0 || n->state != CONN_CLOSED)
        return;
    buf_done(&n->in);
    free(n);
}

/* Closes the socket only, because another address may be tried with the same struct. */
static void close_socket(struct http_conn *n)
{
    tls_free(n->tls);
    n->tls = NULL;
    if (n->fd >= 0) {
        loop_del(n->client->loop, &n->io);
        (void)close(n->fd);
        n->fd = -1;
    }
}

/* The struct lives until no callback uses it. */
void http_conn_close(struct http_conn *n)
{
    if (n->state == CONN_CLOSED)
        return;
    http_conn_enter(n);
    if (n->tls && n->state == CONN_OPEN)
        tls_close(n->tls);
    close_socket(n);
    loop_task_cancel(n->client->loop, &n->again);
    loop_timer_stop(n->client->loop, &n->name);
    n->state = CONN_CLOSED;
    n->call = NULL;
    n->client->n_conns--;
    http_conn_leave(n);
}

/* Sets options of a TCP socket: small requests are sent at once, and dead hosts are noticed. */
static void set_options(int fd, bool local)
{
    int one = 1, idle = 30, interval = 10, count = 3;

    if (local)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    /* Because a generation may be silent for many minutes, a host that vanished must be noticed. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Starts connecting to one address. Returns 0, or -1 with errno. */
static int try_address(struct http_conn *n, const struct sockaddr *addr, socklen_t len)
{
    struct err e;

    n->fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (n->fd < 0)
        return -1;
    set_options(n->fd, n->client->url.local);
    if (connect(n->fd, addr, len) < 0 && errno != EINPROGRESS)
        return -1;
    if (loop_add(n->client->loop, &n->io, n->fd, LOOP_IN | LOOP_OUT | LOOP_RDHUP, on_socket, &e)) {
        errno = e.sys;
        return -1;
    }
    return 0;
}

/* Connects to a unix socket. */
static int try_local(struct http_conn *n)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct str path = n->client->url.host;

    memcpy(addr.sun_path, path.p, path.len);
    return try_address(n, (const struct sockaddr *)&addr, sizeof(addr));
}

/* Tries the next address, from n->address on. Returns -1 when none is left. */
static int try_next(struct http_conn *n)
{
    struct resolve *r = &n->client->resolve;

    if (n->client->url.local)
        return n->address++ == 0 ? try_local(n) : -1;
    while (n->address < r->n) {
        const struct resolve_address *a = &r->at[n->address++];

        if (try_address(n, (const struct sockaddr *)&a->addr, a->len) == 0)
            return 0;
        close_socket(n);
    }
    return -1;
}

/* Fails the call. sys is the reason. */
static void fail_connection(struct http_conn *n, const char *what, int sys)
{
    struct err e = {0};

    errno = sys;
    (void)err_sys(&e, ERR_ENGINE_UNAVAILABLE, "upstream: %s", what);
    http_conn_broken(n, &e);
}

/* Fails the call, because no address is left, and resolves the name again in case the server has
 * moved. */
static void fail_unreachable(struct http_conn *n, int sys)
{
    struct err e = {0};

    n->client->connect_error = sys;
    resolve_again(&n->client->resolve);
    if (n->client->url.local || n->client->resolve.n > 0) {
        fail_connection(n, "cannot connect", sys);
        return;
    }
    (void)err_set(&e, ERR_ENGINE_UNAVAILABLE, "upstream: the name does not resolve");
    http_conn_broken(n, &e);
}

static void on_name_due(struct loop_timer *t);

/* Ends a first try that failed at once. While a name is looked up in the background for the first
 * time, the call waits for its addresses. */
static void end_first_try(struct http_conn *n)
{
    const struct resolve *r = &n->client->resolve;

    if (n->client->background && n->address == 0 && r->n == 0 && r->job) {
        loop_timer_set(n->client->loop, &n->name, NAME_DUE_MS, on_name_due);
        return;
    }
    fail_unreachable(n, n->client->url.local ? n->first_error : EHOSTUNREACH);
}

static void on_name_due(struct loop_timer *t)
{
    struct http_conn *n = CONTAINER_OF(t, struct http_conn, name);

    if (try_next(n) == 0)
        return;
    close_socket(n);
    end_first_try(n);
}

/* A first try that failed at once ends in the next loop iteration, not inside of the caller. */
static void on_unreachable(struct loop_task *t)
{
    end_first_try(CONTAINER_OF(t, struct http_conn, again));
}

/* An error at the first try is reported in the next loop iteration. */
struct http_conn *http_conn_open(struct http_client *c, struct http_call *call)
{
    struct http_conn *n = mem_zalloc(sizeof(*n));

    n->client = c;
    n->call = call;
    n->fd = -1;
    n->read_bytes = READ_FIRST;
    c->n_conns++;
    if (try_next(n) < 0) {
        n->first_error = errno;
        close_socket(n);
        loop_task_post(c->loop, &n->again, on_unreachable);
    }
    return n;
}

/* Continues the TLS handshake. */
static void continue_handshake(struct http_conn *n)
{
    struct err e = {0};
    int rc = tls_handshake(n->tls, &n->client->session, &e);

    if (rc < 0) {
        http_conn_broken(n, &e);
    } else if (rc > 0) {
        n->state = CONN_OPEN;
        http_conn_opened(n);
    }
}

/* Reads from the socket whether the connection succeeded. */
static void finish_connect(struct http_conn *n)
{
    struct err e = {0};
    int sys = 0;
    socklen_t len = sizeof(sys);

    (void)getsockopt(n->fd, SOL_SOCKET, SO_ERROR, &sys, &len);
    if (sys != 0) {
        close_socket(n);
        if (try_next(n) < 0)
            fail_unreachable(n, sys);
        return;
    }
    n->client->connect_error = 0;
    if (!n->client->url.tls) {
        n->state = CONN_OPEN;
        http_conn_opened(n);
        return;
    }
    if (tls_new(n->client->tls, n->client->host, n->fd, &n->tls, &e) < 0) {
        http_conn_broken(n, &e);
        return;
    }
    n->state = CONN_SHAKING;
    continue_handshake(n);
}

/* Handles an event by the connection's state. */
static void on_socket(struct loop_io *io, unsigned events)
{
    struct http_conn *n = CONTAINER_OF(io, struct http_conn, io);

    http_conn_enter(n);
    if (n->state == CONN_CONNECTING && (events & (LOOP_OUT | LOOP_ERR | LOOP_HUP)))
        finish_connect(n);
    else if (n->state == CONN_SHAKING)
        continue_handshake(n);
    else if (n->state == CONN_OPEN)
        http_conn_ready(n, events);
    http_conn_leave(n);
}

/* Returns 0 if no byte is available, -1 at the end, proper or not. */
ssize_t http_conn_read(struct http_conn *n, char *p, size_t len)
{
    ssize_t got;

    if (n->tls) {
        got = tls_read(n->tls, p, len);
        n->ended = got < 0;
        n->clean_end = got == TLS_CLOSED;
        return got == TLS_CLOSED ? -1 : got;
    }
    do {
        got = recv(n->fd, p, len, 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        return got;
    if (got < 0 && errno == EAGAIN)
        return 0;
    n->ended = true;
    n->clean_end = got == 0;
    return -1;
}

/* The time of a read stays between a quarter of READ_TURN_US and all of it. */
void http_conn_set_pace(struct http_conn *n, size_t got, uint64_t took_us)
{
    if (took_us > READ_TURN_US)
        n->read_bytes = MAX_OF(n->read_bytes / 2, (size_t)READ_LEAST);
    else if (got == n->read_bytes && took_us < READ_TURN_US / 4)
        n->read_bytes = MIN_OF(n->read_bytes * 2, (size_t)SCRATCH_BYTES);
}

/* Returns 0 if the socket is full, -1 for an error. */
ssize_t http_conn_write(struct http_conn *n, struct str bytes, bool more)
{
    return tls_or_plain_write(n->tls, n->fd, bytes, more);
}
