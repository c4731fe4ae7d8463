/* Connecting, the TLS handshake, and moving bytes (store_conn.h). Failures are reported by the task
 * `work`, so that no caller is called back from its own call. */
#include "common/fleet/store_conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"

enum {
    READ_BYTES = 64 << 10,
    READS_PER_TURN = 16, /* then other descriptors are served */
    WRITE_PER_TURN = 4 << 20,
    BUFFER_KEPT = 256 << 10, /* memory that an empty buffer keeps */
};

static void on_socket(struct loop_io *io, unsigned events);
static void on_work(struct loop_task *t);

static void close_socket(struct store_conn *c)
{
    tls_free(c->tls);
    c->tls = NULL;
    if (c->fd < 0)
        return;
    loop_del(c->loop, &c->io);
    (void)close(c->fd);
    c->fd = -1;
}

/* Small commands go at once, and a host that vanished is noticed. */
static void set_options(const struct store_conn *c)
{
    int one = 1, idle = 5, interval = 2, count = 3;

    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &c->limit_ms, sizeof(c->limit_ms));
}

/* Starts to connect to one address. Returns 0, or -1 with errno. */
static int try_address(struct store_conn *c, const struct resolve_address *a)
{
    struct err e;

    c->fd = socket(a->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -1;
    set_options(c);
    if (connect(c->fd, (const struct sockaddr *)&a->addr, a->len) < 0 && errno != EINPROGRESS)
        return -1;
    if (loop_add(c->loop, &c->io, c->fd, LOOP_IN | LOOP_OUT | LOOP_RDHUP, on_socket, &e) == 0)
        return 0;
    errno = e.sys;
    return -1;
}

/* Appends why the last address that was tried does not serve. */
static void note_failure(struct store_conn *c, const char *why)
{
    char text[RESOLVE_TEXT] = "the server";

    if (c->next > 0)
        resolve_text((const struct sockaddr *)&c->at[c->next - 1].addr, c->at[c->next - 1].len,
                     text);
    buf_printf(&c->why, "%s%s: %s", c->why.len ? "; " : "", text, why);
}

/* Closes, and has `broken` called with c->why. */
static void break_later(struct store_conn *c)
{
    close_socket(c);
    c->state = STORE_CONN_BROKEN;
    loop_task_post(c->loop, &c->work, on_work);
}

/* Tries addresses until one begins to connect. */
static void try_next(struct store_conn *c)
{
    c->state = STORE_CONN_CONNECTING;
    while (c->next < c->n_at) {
        if (try_address(c, &c->at[c->next++]) == 0)
            return;
        note_failure(c, strerror(errno));
        close_socket(c);
    }
    if (c->n_at == 0)
        buf_printf(&c->why, "%s: the name does not resolve", c->host);
    break_later(c);
}

void store_conn_open(struct store_conn *c, const struct resolve_address *at, size_t n)
{
    CHECK(c->state == STORE_CONN_CLOSED);
    c->fd = -1;
    c->at = at;
    c->n_at = n;
    c->next = 0;
    buf_clear(&c->why);
    try_next(c);
}

void store_conn_give_up(struct store_conn *c, const char *why)
{
    bool connecting = c->state == STORE_CONN_CONNECTING;

    if (c->state == STORE_CONN_CLOSED || c->state == STORE_CONN_BROKEN)
        return;
    note_failure(c, why);
    close_socket(c);
    if (connecting)
        try_next(c);
    else
        break_later(c);
}

static void end_opening(struct store_conn *c)
{
    c->state = STORE_CONN_OPEN;
    buf_clear(&c->why);
    c->fns->opened(c->ctx);
}

static void shake_hands(struct store_conn *c)
{
    struct err e = {0};
    int rc = tls_handshake(c->tls, &c->session, &e);

    if (rc < 0)
        store_conn_give_up(c, e.text);
    else if (rc > 0)
        end_opening(c);
}

/* The socket reports whether the connection stands. */
static void end_connecting(struct store_conn *c)
{
    struct err e = {0};
    socklen_t len = sizeof(int);
    int sys = 0;

    (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &sys, &len);
    if (sys != 0) {
        store_conn_give_up(c, strerror(sys));
    } else if (!c->tls_context) {
        end_opening(c);
    } else {
        c->state = STORE_CONN_SHAKING;
        if (tls_new(c->tls_context, c->host, c->fd, &c->tls, &e))
            store_conn_give_up(c, e.text);
        else
            shake_hands(c);
    }
}

/* Returns bytes read, 0 if there are none now, -1 at the end, with errno (0: a proper end). */
static ssize_t read_bytes(struct store_conn *c, char *p, size_t n)
{
    ssize_t got;

    errno = 0;
    if (c->tls) {
        got = tls_read(c->tls, p, n);
        return got == TLS_CLOSED ? -1 : got;
    }
    do {
        got = recv(c->fd, p, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return 0;
    return got == 0 ? -1 : got;
}

/* A short read has emptied a socket, unless more is known to follow it: the end, or what TLS has
 * decrypted. */
static void read_some(struct store_conn *c, bool follows)
{
    bool more = true;
    ssize_t got = 0;
    int sys;

    for (int i = 0; i < READS_PER_TURN && more; i++) {
        got = read_bytes(c, buf_reserve(&c->in, READ_BYTES), READ_BYTES);
        more = got == READ_BYTES || (got > 0 && follows);
        if (got > 0)
            c->in.len += (size_t)got;
    }
    sys = errno;
    c->unread = more;
    if (c->unread)
        loop_task_post(c->loop, &c->work, on_work);
    if (c->in.len > 0)
        c->fns->received(c->ctx);
    if (c->in.len == 0)
        buf_done_above(&c->in, BUFFER_KEPT);
    if (got < 0 && c->state == STORE_CONN_OPEN)
        store_conn_give_up(c, sys ? strerror(sys) : "the server closed the connection");
}

static void write_some(struct store_conn *c)
{
    size_t until = c->sent + WRITE_PER_TURN;

    while (c->sent < c->out.len && c->sent < until) {
        struct str bytes = str_sub(buf_str(&c->out), c->sent, until - c->sent);
        ssize_t n = tls_or_plain_write(c->tls, c->fd, bytes, false);

        if (n == 0)
            return;
        if (n < 0) {
            store_conn_give_up(c, errno ? strerror(errno) : "the connection ended");
            return;
        }
        c->sent += (size_t)n;
    }
    if (c->sent < c->out.len) {
        loop_task_post(c->loop, &c->work, on_work);
        return;
    }
    c->sent = 0;
    buf_clear(&c->out);
    buf_done_above(&c->out, BUFFER_KEPT);
}

static void on_work(struct loop_task *t)
{
    struct store_conn *c = CONTAINER_OF(t, struct store_conn, work);

    if (c->state == STORE_CONN_BROKEN) {
        store_conn_close(c);
        buf_add_c(&c->why, 0);
        c->fns->broken(c->ctx, c->why.p);
        return;
    }
    if (c->state == STORE_CONN_OPEN)
        write_some(c);
    if (c->state == STORE_CONN_OPEN && c->unread)
        read_some(c, true);
}

static void on_socket(struct loop_io *io, unsigned events)
{
    struct store_conn *c = CONTAINER_OF(io, struct store_conn, io);

    if (c->state == STORE_CONN_CONNECTING && (events & (LOOP_OUT | LOOP_ERR | LOOP_HUP)))
        end_connecting(c);
    else if (c->state == STORE_CONN_SHAKING)
        shake_hands(c);
    if (c->state == STORE_CONN_OPEN && (events & LOOP_OUT))
        write_some(c);
    if (c->state == STORE_CONN_OPEN)
        read_some(c, c->tls || (events & (LOOP_RDHUP | LOOP_HUP | LOOP_ERR)));
}

void store_conn_flush(struct store_conn *c)
{
    if (c->state == STORE_CONN_OPEN)
        loop_task_post(c->loop, &c->work, on_work);
}

void store_conn_close(struct store_conn *c)
{
    if (c->state == STORE_CONN_CLOSED)
        return;
    if (c->tls && c->state == STORE_CONN_OPEN)
        tls_close(c->tls);
    close_socket(c);
    loop_task_cancel(c->loop, &c->work);
    c->state = STORE_CONN_CLOSED;
    c->unread = false;
    c->sent = 0;
    buf_clear(&c->in);
    buf_clear(&c->out);
}

void store_conn_done(struct store_conn *c)
{
    store_conn_close(c);
    tls_session_free(c->session);
    buf_done(&c->in);
    buf_done(&c->out);
    buf_done(&c->why);
}
