#include "router/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "router/bodies.h"
#include "router/relay.h"

enum {
    SPLICE_MIN = 256 * 1024, /* shorter rests are copied */
    SPLICE_BYTES = 1 << 20
};

/* The worker takes no more bytes. Its answer may be waiting nevertheless. */
static void up_broke(struct conn *c)
{
    c->up_broken = true;
    flow_clear(&c->up);
    c->link->readable = c->link->hup = true;
}

void upload_write(struct conn *c, struct iovec *iov, int n)
{
    bool taken;

    if (c->link->state != LINK_OPEN)
        flow_park(&c->up, iov, n);
    else if (flow_write(&c->up, c->link->fd, iov, n, &taken) != 0)
        up_broke(c);
    else if (!taken)
        link_want_out(c->link, true);
}

void upload_refuse(struct conn *c, const struct err *e)
{
    c->up.done = false; /* what follows is not looked at */
    if (c->answered)
        conn_close(c);
    else
        conn_fail(c, e);
}

/* Body bytes of the client, in order. Returns how many are used up. */
static size_t feed_up(struct conn *c, struct str in)
{
    size_t total = 0;

    while (total < in.len && !c->up.done && !c->up_broken && c->state == CONN_RELAY) {
        struct iovec iov = {.iov_base = (char *)(uintptr_t)in.p + total};
        size_t used;
        struct err e;

        if (flow_take(&c->up, str_sub(in, total, in.len), &used, &iov.iov_len, &e) != 0) {
            upload_refuse(c, &e);
            return total;
        }
        if (c->up.chunked.total_bytes > (uint64_t)c->hub->config->max_body_bytes) {
            err_set(&e, ERR_BODY_TOO_LARGE, "the body is larger than %llu bytes",
                    (unsigned long long)c->hub->config->max_body_bytes);
            upload_refuse(c, &e);
            return total;
        }
        if (used == 0)
            break; /* a part of a size line */
        total += used;
        if (iov.iov_len == 0)
            continue;
        bodies_take(c, iov.iov_len);
        metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, iov.iov_len);
        relay_keep_more(c, &iov);
        upload_write(c, &iov, 1);
    }
    return total;
}

/* Body bytes that came together with the head. in_seen: how many of them can only wait. */
static void feed_up_kept(struct conn *c)
{
    size_t used = feed_up(c, buf_str(&c->in));

    if (c->state != CONN_RELAY)
        return;
    buf_consume(&c->in, used);
    c->in_seen = c->up.done ? 0 : c->in.len;
}

static void read_up(struct conn *c, size_t *budget)
{
    size_t want = c->up.window_bytes, used;
    ssize_t n;

    do
        n = recv(c->fd, c->hub->scratch, want, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return;
    }
    if (n <= 0) {
        conn_close(c); /* the client is gone */
        return;
    }
    if ((size_t)n < want && !c->hup)
        c->readable = false;
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    buf_add(&c->in, c->hub->scratch, c->in.len > 0 ? (size_t)n : 0);
    used = feed_up(c, c->in.len > 0 ? buf_str(&c->in) : str_of(c->hub->scratch, (size_t)n));
    if (c->state != CONN_RELAY)
        return;
    if (c->in.len > 0)
        buf_consume(&c->in, used);
    else
        buf_add(&c->in, c->hub->scratch + used, (size_t)n - used);
    c->in_seen = c->in.len;
}

/* From the pipe into the worker's socket. Returns whether the pipe is empty. */
static bool splice_out(struct conn *c)
{
    while (c->piped_bytes > 0) {
        ssize_t n = splice(c->pipe[0], NULL, c->link->fd, NULL, c->piped_bytes,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            link_want_out(c->link, true);
            return false;
        }
        if (n <= 0) {
            up_broke(c);
            return false;
        }
        c->piped_bytes -= (size_t)n;
    }
    return true;
}

/* Moves a part of a long Content-Length body without copying it through user space. Returns whether
 * something moved. */
static bool splice_in(struct conn *c, size_t *budget)
{
    size_t want = c->up.left_bytes < SPLICE_BYTES ? (size_t)c->up.left_bytes : SPLICE_BYTES;
    ssize_t n;

    do
        n = splice(c->fd, NULL, c->pipe[1], NULL, want, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return false;
    }
    if (n <= 0) {
        conn_close(c); /* the client is gone */
        return false;
    }
    c->piped_bytes = (size_t)n;
    c->up.left_bytes -= (size_t)n;
    c->up.done = c->up.left_bytes == 0;
    bodies_take(c, (size_t)n);
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, (uint64_t)n);
    return splice_out(c);
}

static bool may_splice(struct conn *c)
{
    if (c->up.body != HTTP1_LENGTH || !c->link->unix_socket || c->in.len > 0)
        return false;
    if (c->pipe[0] >= 0)
        return true;
    return c->up.left_bytes >= SPLICE_MIN && hub_take_pipe(c->hub, c->pipe) == 0;
}

/* What was refused before goes first. Returns whether the worker is ready for more. */
static bool flush_up(struct conn *c)
{
    bool taken;

    if (c->piped_bytes > 0)
        return splice_out(c);
    if (!flow_parked(&c->up))
        return true;
    if (flow_flush(&c->up, c->link->fd, &taken) != 0) {
        up_broke(c);
        return false;
    }
    link_want_out(c->link, !taken);
    return taken;
}

void upload_pump(struct conn *c, size_t *budget)
{
    while (c->state == CONN_RELAY && c->link != NULL && c->link->state == LINK_OPEN &&
           !c->up_broken && flush_up(c)) {
        if (c->up.done)
            return;
        if (c->in.len > c->in_seen) {
            feed_up_kept(c);
            continue;
        }
        if (!c->readable || *budget == 0)
            return;
        if (may_splice(c))
            (void)splice_in(c, budget);
        else
            read_up(c, budget);
    }
}
