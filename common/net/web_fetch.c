/*
 * One connection a request, waited for with poll in slices, so that the time limit and the caller's
 * cancelling hold everywhere:
 *
 *   hop        URL -> rules -> addresses -> rules -> connection (-> TLS) -> GET -> head
 *   web_fetch  hops, at most WEB_REDIRECTS_MAX redirections, then the body
 *
 * An error contains the reason but no place: the sender of the URL must not learn where a
 * redirection led, or to which address a name resolves.
 */
#include "common/net/web_fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"
#include "common/net/resolve.h"
#include "common/net/tls.h"
#include "common/net/web_rules.h"
#include "common/net/web_url.h"

enum {
    PIECE_BYTES = 64 << 10,
    HEADS_MAX = 64 << 10, /* bytes of all heads of one answer */
    INTERIM_MAX = 8,      /* most interim heads before the final one */
    LOOK_MS = 50,
    CONNECT_MS = 3000, /* for one address, because the next one may answer */
};

/* One connection, and its bytes that were read but not used yet. */
struct web_line {
    const struct web_fetch *f;
    struct err *e;
    int fd;
    struct tls *tls;
    struct buf in;
};

/* --- waiting --- */

static int too_slow(struct err *e)
{
    return err_set(e, ERR_IO, "it takes too long");
}

/* Checked before every step, even when bytes are available, because a server that never pauses must
 * not exceed the limits. */
static int check_limits(const struct web_line *l)
{
    if (cancel_wanted())
        return cancel_fail(l->e);
    return clock_us() >= l->f->until_us ? too_slow(l->e) : 0;
}

/* Waits until the socket is ready, or a short time has passed (because TLS may want either
 * direction). */
static void wait_a_moment(const struct web_line *l, short events)
{
    struct pollfd p = {.fd = l->fd, .events = events};

    (void)poll(&p, 1, LOOK_MS);
}

enum { LINE_ENDED = 0, LINE_BROKEN = -1, LINE_WAITS = -2 };

/* Returns the number of bytes, or one of the values above. */
static ssize_t receive_bytes(const struct web_line *l, char *p, size_t n)
{
    ssize_t got;

    if (l->tls) {
        got = tls_read(l->tls, p, n);
        if (got == 0)
            return LINE_WAITS;
        return got == TLS_CLOSED ? LINE_ENDED : got;
    }
    do {
        got = recv(l->fd, p, n, 0);
    } while (got < 0 && errno == EINTR);
    return got < 0 && errno == EAGAIN ? LINE_WAITS : got;
}

/* Reads more into l->in. Returns 1, 0 if the other side has ended, or -1. */
static int read_more(struct web_line *l)
{
    while (check_limits(l) == 0) {
        ssize_t got = receive_bytes(l, buf_reserve(&l->in, PIECE_BYTES), PIECE_BYTES);

        if (got > 0) {
            l->in.len += (size_t)got;
            return 1;
        }
        if (got == LINE_ENDED)
            return 0;
        if (got == LINE_BROKEN)
            return err_set(l->e, ERR_IO, "its connection broke");
        wait_a_moment(l, POLLIN);
    }
    return -1;
}

static int send_all(const struct web_line *l, struct str bytes)
{
    while (bytes.len > 0) {
        ssize_t sent;

        if (check_limits(l))
            return -1;
        sent = tls_or_plain_write(l->tls, l->fd, bytes, false);
        if (sent < 0)
            return err_set(l->e, ERR_IO, "its connection broke");
        bytes = str_sub(bytes, (size_t)sent, bytes.len);
        if (sent == 0)
            wait_a_moment(l, POLLOUT);
    }
    return 0;
}

/* --- connecting --- */

static void line_close(struct web_line *l)
{
    tls_free(l->tls);
    if (l->fd >= 0)
        (void)close(l->fd);
    buf_done(&l->in);
    *l = (struct web_line){.f = l->f, .e = l->e, .fd = -1};
}

/* Returns the time at which the next address is tried. The last address has all the time. */
static uint64_t connect_until(const struct web_line *l, bool is_last)
{
    uint64_t now = clock_us(), left = l->f->until_us > now ? l->f->until_us - now : 0;

    return now + (is_last ? left : MIN_OF(left / 2, (uint64_t)CONNECT_MS * 1000));
}

/* Returns 1, or 0 if it is not connected by then. */
static int wait_connected(const struct web_line *l, uint64_t until_us)
{
    struct pollfd p = {.fd = l->fd, .events = POLLOUT};

    while (poll(&p, 1, 0) <= 0) {
        if (check_limits(l))
            return -1;
        if (clock_us() >= until_us)
            return 0;
        wait_a_moment(l, POLLOUT);
    }
    return 1;
}

/* Returns 1, 0 if this address failed, or -1 to give up. */
static int connect_to(struct web_line *l, const struct addrinfo *a)
{
    uint64_t until_us = connect_until(l, a->ai_next == NULL);
    int rc, sys = 0;
    socklen_t len = sizeof(sys);

    l->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd >= 0 && (connect(l->fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS)) {
        rc = wait_connected(l, until_us);
        if (rc < 0)
            return -1;
        if (rc > 0 && getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &sys, &len) == 0 && sys == 0)
            return 1;
    }
    if (l->fd >= 0)
        (void)close(l->fd);
    l->fd = -1;
    return 0;
}

static int connect_any(struct web_line *l, const struct addrinfo *list)
{
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int rc = connect_to(l, a);

        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return err_set(l->e, ERR_IO, "its host cannot be connected to");
}

/* Checks all addresses of a name. One forbidden address is enough to refuse it, because a name with
 * both kinds is a trap. A name without an address and a forbidden name get the same error, because
 * clients must not learn the names of the operator's network. */
static int check_addresses(const struct web_line *l, const struct addrinfo *list)
{
    bool lets = list != NULL;

    for (const struct addrinfo *a = list; a; a = a->ai_next)
        lets = lets && web_rules_let(l->f->rules, a->ai_addr);
    return lets ? 0
                : err_set(l->e, ERR_INVALID,
                          "its host has no address, or one that is not public "
                          "(--media-fetch-address)");
}

/* Makes the thread's context when it is first needed. Its errors, such as a path, are only for the
 * operator, who gets them when the gateway starts. */
static int tls_begin(struct web_line *l, const char *host)
{
    struct tls_context **context = l->f->tls;

    if ((!*context && tls_context_new(l->f->ca_file, false, context, NULL)) ||
        tls_new(*context, host, l->fd, &l->tls, NULL))
        return err_set(l->e, ERR_WORKER_UNAVAILABLE, "the gateway cannot check certificates now");
    tls_limit(l->tls, l->f->until_us);
    return 0;
}

static int shake_hands(struct web_line *l, const char *host)
{
    struct tls_session *session = NULL;
    int rc = 0;

    if (tls_begin(l, host))
        return -1;
    while (rc == 0 && check_limits(l) == 0) {
        rc = tls_handshake(l->tls, &session, NULL);
        if (rc == 0)
            wait_a_moment(l, POLLIN);
    }
    tls_session_free(session);
    if (rc < 0)
        return err_set(l->e, ERR_IO, "%s",
                       tls_refused(l->tls) ? "its host's certificate was refused"
                                           : "its host does not speak TLS as it should");
    return rc > 0 ? 0 : -1;
}

static int line_open(struct web_line *l, const struct web_url *u)
{
    struct addrinfo *list = NULL;
    int rc;

    rc = resolve_wait(u->host, web_url_port(u), l->f->until_us, &list);
    if (rc == RESOLVE_BUSY)
        return err_set(l->e, ERR_OVERLOADED, "too many hosts are being looked up: try again later");
    if (rc < 0)
        return cancel_wanted() ? cancel_fail(l->e) : too_slow(l->e);
    rc = check_addresses(l, list);
    if (rc == 0)
        rc = connect_any(l, list);
    if (list)
        freeaddrinfo(list);
    return rc == 0 && u->tls ? shake_hands(l, u->host) : rc;
}

/* --- one request --- */

static int send_get(const struct web_line *l, const struct web_url *u)
{
    struct buf head = {0};
    int rc;

    buf_puts(&head, "GET ");
    if (!str_starts(u->target, STR("/")))
        buf_add_c(&head, '/');
    buf_add_str(&head, u->target);
    buf_puts(&head, " HTTP/1.1\r\nHost: ");
    buf_add_str(&head, u->authority);
    buf_puts(&head, "\r\nUser-Agent: rollgate\r\nAccept: image/*\r\n"
                    "Accept-Encoding: identity\r\nConnection: close\r\n\r\n");
    rc = send_all(l, buf_str(&head));
    buf_done(&head);
    return rc;
}

/* Reads the head of the answer, after interim ones. It is at the start of l->in. */
static int read_head(struct web_line *l, struct http1_head *h)
{
    size_t seen = 0, skipped = 0;
    unsigned interim = 0;

    for (;;) {
        struct err why = {0};
        int rc = http1_response(h, buf_str(&l->in), seen, HEADS_MAX - skipped, false, &why);

        if (rc < 0)
            return err_set(l->e, ERR_INVALID, "its answer is no HTTP");
        if (rc > 0 && h->status >= 200)
            return 0;
        seen = rc > 0 ? 0 : l->in.len;
        if (rc > 0) {
            skipped += h->len_bytes;
            if (++interim > INTERIM_MAX || skipped >= HEADS_MAX)
                return err_set(l->e, ERR_INVALID, "its host sends interim answers and no other");
            buf_consume(&l->in, h->len_bytes);
            continue;
        }
        rc = read_more(l);
        if (rc <= 0)
            return rc < 0 ? -1 : err_set(l->e, ERR_IO, "its connection ended without an answer");
    }
}

static bool is_redirection(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* What matters of the answer's head. */
struct web_answer {
    enum http1_body framing;
    uint64_t length;
};

/* Returns 1 with `next` as the URL to fetch instead, 0 if the file follows, or -1. */
static int judge_status(const struct web_line *l, const struct web_url *u,
                        const struct http1_head *h, struct buf *next)
{
    struct str location = http1_get(h, STR("location"));
    struct str coding = http1_get(h, STR("content-encoding"));

    if (is_redirection(h->status) && location.p) {
        web_url_join(u, location, next);
        return 1;
    }
    if (h->status != 200)
        return err_set(l->e, ERR_INVALID, "its host answers %d", h->status);
    if (coding.len > 0 && !str_eq_nocase(coding, STR("identity")))
        return err_set(l->e, ERR_INVALID, "its answer is compressed");
    return 0;
}

/* Returns the same as judge_status. Takes the head off l->in. */
static int follow_hop(struct web_line *l, struct str url, struct buf *next, struct web_answer *ret)
{
    struct http1_head *h;
    struct web_url u;
    const char *why = web_url_parse(url, &u);
    int rc;

    if (!why)
        why = web_rules_refuse(l->f->rules, &u);
    if (why)
        return err_set(l->e, ERR_INVALID, "%s", why);
    if (line_open(l, &u) || send_get(l, &u))
        return -1;
    h = mem_alloc(sizeof(*h));
    rc = read_head(l, h);
    if (rc == 0)
        rc = judge_status(l, &u, h, next);
    if (rc == 0) {
        *ret = (struct web_answer){h->body, h->length};
        buf_consume(&l->in, h->len_bytes);
    }
    free(h);
    return rc;
}

/* --- the file --- */

static int too_large(const struct web_line *l)
{
    return err_set(l->e, ERR_BODY_TOO_LARGE, "it has more than %zu bytes", l->f->max_bytes);
}

static int cut_off(const struct web_line *l)
{
    return err_set(l->e, ERR_IO, "its answer is cut off");
}

/* Moves the file's bytes from l->in to out. Returns 1 after the last, 0 if more follow, or -1. */
static int read_chunks(struct web_line *l, struct chunked *c, struct buf *out)
{
    struct str in = buf_str(&l->in);
    int rc = 0;

    while (rc == 0 && in.len > 0) {
        struct chunked_run run;
        struct err why = {0};

        rc = chunked_next(c, in, &run, &why);
        if (rc < 0)
            return err_set(l->e, ERR_INVALID, "its answer is no HTTP");
        if (run.kind == CHUNKED_DATA)
            buf_add(out, in.p, run.len_bytes);
        in = str_sub(in, run.len_bytes, in.len);
    }
    buf_clear(&l->in);
    return rc;
}

static int read_length(struct web_line *l, uint64_t left, struct buf *out)
{
    buf_add_str(out, str_sub(buf_str(&l->in), 0, (size_t)MIN_OF(left, (uint64_t)l->in.len)));
    left -= MIN_OF(left, (uint64_t)l->in.len);
    buf_clear(&l->in);
    return left == 0;
}

/* Returns the same as read_chunks. `got`: bytes of the file so far. */
static int read_body_bytes(struct web_line *l, const struct web_answer *a, struct chunked *c,
                           size_t got, struct buf *out)
{
    if (a->framing == HTTP1_CHUNKED)
        return read_chunks(l, c, out);
    return read_length(l, a->framing == HTTP1_LENGTH ? a->length - got : UINT64_MAX, out);
}

static int read_file(struct web_line *l, const struct web_answer *a, struct buf *out)
{
    size_t start = out->len;
    struct chunked c = {0};
    int rc;

    if (a->framing == HTTP1_NO_BODY)
        return 0;
    if (a->framing == HTTP1_LENGTH && a->length > l->f->max_bytes)
        return too_large(l);
    while ((rc = read_body_bytes(l, a, &c, out->len - start, out)) == 0) {
        if (out->len - start > l->f->max_bytes)
            return too_large(l);
        rc = read_more(l);
        if (rc == 0)
            return a->framing == HTTP1_UNTIL_CLOSE ? 0 : cut_off(l);
        if (rc < 0)
            return -1;
    }
    if (rc < 0)
        return -1;
    return out->len - start > l->f->max_bytes ? too_large(l) : 0;
}

int web_fetch(const struct web_fetch *f, struct str url, struct buf *out, struct err *e)
{
    struct web_line l = {.f = f, .e = e, .fd = -1};
    struct web_answer answer = {0};
    struct buf at = {0}, next = {0};
    int rc = 1;

    buf_add_str(&at, url);
    for (unsigned hops = 0; rc == 1; hops++) {
        if (hops > WEB_REDIRECTS_MAX) {
            rc = err_set(e, ERR_INVALID, "it is redirected more than %d times", WEB_REDIRECTS_MAX);
            break;
        }
        rc = follow_hop(&l, buf_str(&at), &next, &answer);
        if (rc == 0)
            rc = read_file(&l, &answer, out);
        line_close(&l);
        buf_done(&at);
        at = next;
        next = (struct buf){0};
    }
    buf_done(&at);
    buf_done(&next);
    return rc;
}
