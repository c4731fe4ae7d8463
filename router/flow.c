/*
 * One read of a flow passes these steps: flow_take returns how many of its bytes belong to the
 * body, flow_write sends them after the parked ones, and parks what the socket refuses. The order
 * is kept because nothing is written while older bytes are parked.
 *
 * The window starts at 64 KiB. It doubles after the sink has accepted half a MiB without refusing,
 * and is reset at the first refusal. So a slow client makes the router hold only one small read.
 */
#include "router/flow.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "common/base/check.h"
#include "common/net/tls.h"

enum {
    WINDOW_MIN = 64 * 1024, /* smaller windows save little memory and slow downloads */
    WINDOW_MAX = 256 * 1024,
    TRUSTED_BYTES = 512 * 1024,
    TOGETHER_MAX = 4096,
    SIZE_LINE_COST = 128 /* bytes that could be passed on in the time of one size line */
};

void flow_init(struct flow *f)
{
    *f = (struct flow){.pipe = {-1, -1}};
}

void flow_begin(struct flow *f, enum http1_body body, uint64_t length)
{
    f->body = body;
    f->left_bytes = body == HTTP1_LENGTH ? length : 0;
    f->chunked = (struct chunked){0};
    f->window_bytes = WINDOW_MIN;
    f->taken_bytes = 0;
    f->done = body == HTTP1_NO_BODY;
    f->strip = false;
}

void flow_clear(struct flow *f)
{
    buf_done(&f->parked);
    f->parked_at = 0;
}

/* Consumes a chunked body and passes only its payload: one run for each call. */
static int take_payload(struct flow *f, struct str in, size_t *ret_used, size_t *ret_pass,
                        struct err *e)
{
    struct chunked_run run;
    int r = chunked_next(&f->chunked, in, &run, e);

    *ret_used = run.len_bytes;
    *ret_pass = run.kind == CHUNKED_DATA ? run.len_bytes : 0;
    return r;
}

int flow_take(struct flow *f, struct str in, size_t *ret_used, size_t *ret_pass, struct err *e)
{
    int r;

    switch (f->body) {
    case HTTP1_LENGTH:
        *ret_used = *ret_pass = in.len < f->left_bytes ? in.len : (size_t)f->left_bytes;
        f->left_bytes -= *ret_used;
        f->done = f->left_bytes == 0;
        return 0;
    case HTTP1_CHUNKED:
        r = f->strip ? take_payload(f, in, ret_used, ret_pass, e)
                     : chunked_scan(&f->chunked, in, ret_used, ret_pass, e);
        f->done = r == 1;
        return r < 0 ? -1 : 0;
    case HTTP1_UNTIL_CLOSE:
        *ret_used = *ret_pass = in.len;
        return 0;
    default:
        *ret_used = *ret_pass = 0;
        f->done = true;
        return 0;
    }
}

void flow_spend(const struct flow *f, uint32_t lines, size_t n, size_t *budget)
{
    uint32_t now = f->chunked.size_lines; /* fewer: a different body has begun */
    size_t cost = n + (size_t)(now >= lines ? now - lines : now) * SIZE_LINE_COST;

    *budget -= cost < *budget ? cost : *budget;
}

void flow_park(struct flow *f, const struct iovec *iov, int n)
{
    for (int i = 0; i < n; i++)
        buf_add(&f->parked, iov[i].iov_base, iov[i].iov_len);
}

/* Parks the bytes after the first `written` ones. */
static void park_rest(struct flow *f, struct iovec *iov, int n, size_t written)
{
    for (int i = 0; i < n; i++) {
        size_t skip = written < iov[i].iov_len ? written : iov[i].iov_len;

        buf_add(&f->parked, (char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        written -= skip;
    }
}

/* Adapts the window. Only a sink that has accepted TRUSTED_BYTES without refusing gets larger
 * reads, because a slow sink could refuse a whole read. */
static void adapt_window(struct flow *f, size_t bytes, bool taken)
{
    if (!taken) {
        f->window_bytes = WINDOW_MIN;
        f->taken_bytes = 0;
        return;
    }
    f->taken_bytes += bytes;
    if (f->window_bytes < WINDOW_MAX && f->taken_bytes >= TRUSTED_BYTES)
        f->window_bytes *= 2;
}

/* Sends like sendmsg(2). A short message of several pieces is copied into one first, because that
 * costs less than the kernel's work for each piece. */
static ssize_t send_all(int fd, struct iovec *iov, int n, int flags, size_t total)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    char whole[TOGETHER_MAX];
    size_t at = 0;

    if (total > sizeof(whole))
        return sendmsg(fd, &m, flags);
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len > 0)
            memcpy(whole + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return send(fd, whole, total, flags);
}

/* Sends like sendmsg(2), through TLS. Pieces are copied into whole records, because each record
 * costs a header, a tag and a system call. */
static ssize_t send_records(struct tls *t, int fd, const struct iovec *iov, int n)
{
    char record[TLS_RECORD];
    size_t len = 0, sent = 0, at = 0;
    int i = 0;

    while (i < n || len > 0) {
        ssize_t r;

        while (i < n && len < sizeof(record)) {
            size_t some = MIN_OF(iov[i].iov_len - at, sizeof(record) - len);

            if (some > 0)
                memcpy(record + len, (char *)iov[i].iov_base + at, some);
            len += some;
            at += some;
            if (at == iov[i].iov_len) {
                i++;
                at = 0;
            }
        }
        if (len == 0)
            break;
        r = tls_or_plain_write(t, fd, str_of(record, len), false);
        if (r < 0)
            errno = EPIPE;
        if (r <= 0)
            return sent > 0 || r == 0 ? (ssize_t)sent : -1;
        sent += (size_t)r;
        len -= (size_t)r;
        memmove(record, record + r, len);
    }
    return (ssize_t)sent;
}

int flow_write(struct flow *f, int fd, struct iovec *iov, int n, int flags, bool *ret_taken)
{
    size_t total = 0;
    ssize_t r;

    if (flow_parked(f)) {
        flow_park(f, iov, n);
        return flow_flush(f, fd, ret_taken);
    }
    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    do
        r = f->tls ? send_records(f->tls, fd, iov, n)
                   : send_all(fd, iov, n, flags | MSG_NOSIGNAL, total);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EAGAIN)
        return -1;
    if (r < 0)
        r = 0;
    f->given_bytes += (uint64_t)r;
    *ret_taken = (size_t)r == total;
    if (!*ret_taken)
        park_rest(f, iov, n, (size_t)r);
    if (total > WINDOW_MIN / 2)
        adapt_window(f, total, *ret_taken);
    return 0;
}

/* Writes the bytes of the pipe. Returns as flow_flush does. */
static int flush_pipe(struct flow *f, int fd, bool *ret_taken)
{
    size_t had = f->piped_bytes;

    while (f->piped_bytes > 0) {
        ssize_t n =
            splice(f->pipe[0], NULL, fd, NULL, f->piped_bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0)
            return -1;
        f->piped_bytes -= (size_t)n;
    }
    f->given_bytes += had - f->piped_bytes;
    *ret_taken = f->piped_bytes == 0;
    adapt_window(f, had - f->piped_bytes, *ret_taken);
    return 0;
}

/* If the pipe has bytes, nothing is parked. */
int flow_flush(struct flow *f, int fd, bool *ret_taken)
{
    size_t left = f->parked.len - f->parked_at;
    struct iovec rest = {.iov_base = f->parked.p + f->parked_at, .iov_len = left};
    ssize_t r;

    *ret_taken = true;
    if (f->piped_bytes > 0)
        return flush_pipe(f, fd, ret_taken);
    if (left == 0)
        return 0;
    do
        r = f->tls ? send_records(f->tls, fd, &rest, 1)
                   : send(fd, f->parked.p + f->parked_at, left, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EAGAIN)
        return -1;
    if (r > 0) {
        f->parked_at += (size_t)r;
        f->given_bytes += (uint64_t)r;
    }
    *ret_taken = f->parked_at == f->parked.len;
    if (*ret_taken)
        flow_clear(f);
    return 0;
}

ssize_t flow_splice(struct flow *f, int fd, size_t most)
{
    size_t want = f->left_bytes < most ? (size_t)f->left_bytes : most;
    ssize_t n;

    CHECK(f->body == HTTP1_LENGTH && !flow_parked(f) && want > 0);
    do
        n = splice(fd, NULL, f->pipe[1], NULL, want, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    f->piped_bytes = (size_t)n;
    f->left_bytes -= (size_t)n;
    f->done = f->left_bytes == 0;
    return n;
}
