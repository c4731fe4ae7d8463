#include "router/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "common/base/check.h"

enum {
    REPLAY_MAX = 16 * 1024,  /* larger requests are not kept for a second try */
    SPLICE_MIN = 256 * 1024, /* shorter rests are copied */
    SPLICE_BYTES = 1 << 20,
    TRIES_MAX = 3,
    EXTRA_MAX = 160, /* header lines of our own */
    IOV_MAX_USED = HTTP1_HEADERS_MAX + 5
};

static void on_link(struct link *link, unsigned events);

/* ------------------------------------------------------------------ writing */

static void park_moves(struct conn *c, const struct flow *f, bool taken)
{
    if (f == &c->down) {
        unsigned mask = LOOP_IN | LOOP_RDHUP | LOOP_OUT;

        if (!taken) /* stays asked for: TCP tells only after a refusal */
            loop_mod(c->hub->loop, &c->io, mask);
    } else if (c->link != NULL && c->link->state == LINK_OPEN) {
        link_want_out(c->link, !taken);
    }
}

/* The worker takes no more bytes. Its answer may be waiting nevertheless. */
static void up_broke(struct conn *c)
{
    c->up_broken = true;
    flow_clear(&c->up);
    c->link->readable = c->link->hup = true;
}

static void write_up(struct conn *c, struct iovec *iov, int n)
{
    bool taken;

    if (c->link->state != LINK_OPEN)
        flow_park(&c->up, iov, n);
    else if (flow_write(&c->up, c->link->fd, iov, n, &taken) != 0)
        up_broke(c);
    else if (!taken)
        park_moves(c, &c->up, false);
}

static void write_down(struct conn *c, struct iovec *iov, int n)
{
    bool taken;

    if (flow_write(&c->down, c->fd, iov, n, &taken) != 0)
        conn_close(c);
    else if (!taken)
        park_moves(c, &c->down, false);
}

/* ------------------------------------------------------------------ the request's head */

/* "METHOD target HTTP/1.1": as it came, or with our version. */
static int first_line(const struct http1_head *h, struct iovec *iov)
{
    const char *p = h->method.p, *end = h->target.p + h->target.len;
    static const char version[] = " HTTP/1.1\r\n";

    iov[0] = (struct iovec){.iov_base = (char *)(uintptr_t)p, .iov_len = (size_t)(end - p)};
    iov[1] = (struct iovec){.iov_base = (char *)(uintptr_t)version, .iov_len = sizeof(version) - 1};
    return 2;
}

/* Appends text or a number to header lines of our own; printf would be seen in a profile. */
static char *put_text(char *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    return to + len;
}

#define PUT(to, literal) put_text(to, literal, sizeof(literal) - 1)

static char *put_number(char *to, uint64_t n)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    return put_text(to, digits + at, sizeof(digits) - at);
}

static char *put_length(char *to, uint64_t n)
{
    return PUT(put_number(PUT(to, "Content-Length: "), n), "\r\n");
}

/* The framing line and the empty line, into `extra`. */
static size_t request_framing(const struct http1_head *h, char extra[EXTRA_MAX])
{
    char *to = extra;

    if (h->body == HTTP1_CHUNKED)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    else if (h->has_length)
        to = put_length(to, h->length);
    return (size_t)(PUT(to, "\r\n") - extra);
}

static int request_iov(const struct http1_head *h, struct str body, char extra[EXTRA_MAX],
                       struct iovec iov[IOV_MAX_USED])
{
    int n = first_line(h, iov);

    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = extra, .iov_len = request_framing(h, extra)};
    if (body.len > 0)
        iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t)body.p, .iov_len = body.len};
    return n;
}

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

static void unavailable(struct conn *c, const struct err *e)
{
    metrics_count(c->hub->page, METRIC_upstream_errors, 1);
    conn_fail(c, e);
}

/* Keeps a copy of a whole request while a second try is possible. */
static void keep_replay(struct conn *c, const struct iovec *iov, int n)
{
    size_t total = 0;

    if (!c->up.done)
        return;
    for (int i = 0; i < n; i++)
        total += iov[i].iov_len;
    if (total > REPLAY_MAX)
        return;
    for (int i = 0; i < n; i++)
        buf_add(&c->replay, iov[i].iov_base, iov[i].iov_len);
}

/* Sends the first bytes of a request. An idle link that died unseen refuses them whole: then
 * nothing is lost, and they go out on a new one. */
static void send_first(struct conn *c, int upstream, struct iovec *iov, int n)
{
    struct err e;

    c->link = take_link(c, upstream, false, &e);
    if (c->link == NULL) {
        unavailable(c, &e);
        return;
    }
    keep_replay(c, iov, n);
    write_up(c, iov, n);
    if (!c->up_broken || !c->link->reused)
        return;
    metrics_count(c->hub->page, METRIC_upstream_resends, 1);
    link_close(c->link);
    c->up_broken = false;
    c->link = take_link(c, upstream, true, &e);
    if (c->link == NULL)
        unavailable(c, &e);
    else
        write_up(c, iov, n);
}

void relay_start(struct conn *c, int upstream, struct str body)
{
    struct iovec iov[IOV_MAX_USED];
    char extra[EXTRA_MAX];
    int n = request_iov(c->hub->head, body, extra, iov);

    c->state = CONN_RELAY;
    c->any = upstream < 0;
    flow_begin(&c->down, HTTP1_UNTIL_CLOSE, 0);
    c->down.done = false;
    conn_no_deadline(c);
    send_first(c, upstream, iov, n);
}

/* The link was reset before any byte of an answer, which means that bytes of ours were not read:
 * the worker cannot have acted on the request. Sends it once more on a new link, if it was kept.
 * Returns whether it did. */
static bool resend(struct conn *c)
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
    c->up_broken = false;
    c->link = take_link(c, upstream, true, &e);
    if (c->link == NULL) {
        unavailable(c, &e);
        return true;
    }
    write_up(c, &iov, 1);
    return true;
}

/* ------------------------------------------------------------------ failures of the worker */

static void cut_answer(struct conn *c)
{
    c->truncated = true;
    c->down.done = true;
    link_close(c->link);
    c->link = NULL;
    metrics_count(c->hub->page, METRIC_upstream_errors, 1);
}

/* End of file (sys 0) or an error while the answer is not complete. */
static void link_ended(struct conn *c, int sys)
{
    struct err e;

    if (c->answered && c->down.body == HTTP1_UNTIL_CLOSE && sys == 0) {
        c->down.done = true;
        c->link_reusable = false;
        return;
    }
    if (c->answered) {
        cut_answer(c);
        return;
    }
    if (c->partial.len == 0 && (sys == ECONNRESET || sys == EPIPE) && resend(c))
        return;
    err_set(&e, ERR_WORKER_UNAVAILABLE, "the session-worker ended before it answered");
    unavailable(c, &e);
}

/* The worker's bytes break the rules. */
static void link_lied(struct conn *c, struct err *e)
{
    e->kind = ERR_WORKER_INVALID;
    if (c->answered) {
        cut_answer(c);
        return;
    }
    err_set(e, ERR_WORKER_INVALID, "the session-worker sent a malformed answer");
    unavailable(c, e);
}

/* ------------------------------------------------------------------ the answer */

/* All of the answer is here. The link goes back to the others when both sides are through. */
static void answer_complete(struct conn *c, size_t unasked_bytes)
{
    struct link *link = c->link;

    c->link = NULL;
    if (c->link_reusable && unasked_bytes == 0 && !link->hup && c->up.done && !c->up_broken &&
        !flow_parked(&c->up) && c->piped_bytes == 0)
        link_release(link);
    else
        link_close(link);
}

/* Bytes of the worker that wait for more; `in` may lie in c->partial itself. */
static void keep_partial(struct conn *c, struct str in)
{
    struct buf rest = {0};

    if (in.len > 0)
        buf_add_str(&rest, in);
    buf_done(&c->partial);
    c->partial = rest;
}

static void feed_body(struct conn *c, struct str in)
{
    while (in.len > 0 && !c->down.done && c->state == CONN_RELAY) {
        size_t used, pass;
        struct err e;

        if (flow_take(&c->down, in, &used, &pass, &e) != 0) {
            link_lied(c, &e);
            return;
        }
        if (pass > 0) {
            struct iovec iov = {.iov_base = (char *)(uintptr_t)in.p, .iov_len = pass};

            write_down(c, &iov, 1);
            metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_DOWN, 0, pass);
        }
        in = str_sub(in, used, in.len);
        if (used == 0)
            break; /* a part of a size line */
    }
    if (c->state != CONN_RELAY)
        return;
    if (c->down.done && c->link != NULL)
        answer_complete(c, in.len);
    else if (!c->down.done)
        keep_partial(c, in);
}

/* Our header lines of the answer and the empty line. */
static size_t answer_lines(struct conn *c, const struct http1_head *h, char extra[EXTRA_MAX])
{
    char id[HUB_REQUEST_ID_MAX], *to = extra;

    if (h->at[HTTP1_REQUEST_ID] == 0) {
        struct str text = hub_request_id(c->hub, id);

        to = put_text(PUT(to, "Rollgate-Request-Id: "), text.p, text.len);
        to = PUT(to, "\r\n");
    }
    if (h->body == HTTP1_CHUNKED && !c->old)
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    else if (h->has_length && h->status != 204)
        to = put_length(to, h->length);
    if (c->closing)
        to = PUT(to, "Connection: close\r\n");
    else if (c->old)
        to = PUT(to, "Connection: keep-alive\r\n");
    return (size_t)(PUT(to, "\r\n") - extra);
}

static void status_line(const struct http1_head *h, const char *in, struct iovec *iov)
{
    static const char version[] = "HTTP/1.1";
    const char *end = h->n > 0 ? h->headers[0].name.p : in + h->len_bytes - 2;

    iov[0] = (struct iovec){.iov_base = (char *)(uintptr_t)version, .iov_len = 8};
    iov[1] =
        (struct iovec){.iov_base = (char *)(uintptr_t)(in + 8), .iov_len = (size_t)(end - in - 8)};
}

/* A 1xx goes to clients that know it; 101 is nothing we asked for. */
static int interim_answer(struct conn *c, const struct http1_head *h, const char *in)
{
    struct iovec iov[IOV_MAX_USED];
    int n = 2;

    if (h->status == 101)
        return -1;
    c->interim = true;
    if (c->old)
        return 0;
    status_line(h, in, iov);
    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t) "\r\n", .iov_len = 2};
    write_down(c, iov, n);
    return 0;
}

/* The final head at the start of `in`, and what of the body came with it, in one write. */
static void begin_answer(struct conn *c, const struct http1_head *h, struct str in)
{
    struct str rest = str_sub(in, h->len_bytes, in.len);
    struct iovec iov[IOV_MAX_USED];
    char extra[EXTRA_MAX];
    size_t used, pass;
    struct err e;
    int n = 2;

    flow_begin(&c->down, h->body, h->length);
    c->down.strip = c->old;
    if (flow_take(&c->down, rest, &used, &pass, &e) != 0) {
        link_lied(c, &e);
        return;
    }
    c->status = h->status;
    c->link_reusable = h->keep_alive && h->body != HTTP1_UNTIL_CLOSE;
    c->closing = c->closing || h->body == HTTP1_UNTIL_CLOSE || !c->up.done ||
                 (c->old && h->body == HTTP1_CHUNKED) || c->hub->draining;
    c->answered = true;
    buf_done(&c->replay);
    status_line(h, in.p, iov);
    n += http1_forward(h, iov + n);
    iov[n++] = (struct iovec){.iov_base = extra, .iov_len = answer_lines(c, h, extra)};
    if (pass > 0)
        iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t)rest.p, .iov_len = pass};
    write_down(c, iov, n);
    if (c->state != CONN_RELAY)
        return;
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_DOWN, 0, pass);
    feed_body(c, str_sub(rest, used, rest.len));
}

/* Bytes before the final head is complete. */
static void feed_head(struct conn *c, struct str in)
{
    struct http1_head *h = c->hub->head;
    struct err e;

    while (c->state == CONN_RELAY) {
        int r =
            http1_response(h, in, 0, (size_t)c->hub->config->max_header_bytes, c->head_request, &e);

        if (r == 0) {
            keep_partial(c, in);
            return;
        }
        if (r == 1 && h->status >= 200) {
            begin_answer(c, h, in);
            return;
        }
        if (r < 0 || interim_answer(c, h, in.p) != 0) {
            link_lied(c, &e);
            return;
        }
        in = str_sub(in, h->len_bytes, in.len);
    }
}

/* One read from the worker. */
static void read_down(struct conn *c, size_t *budget)
{
    struct link *link = c->link;
    size_t want = c->down.window_bytes;
    struct str in;
    ssize_t n;

    do
        n = recv(link->fd, c->hub->scratch, want, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        link->readable = false;
        return;
    }
    if (n <= 0) {
        link_ended(c, n == 0 ? 0 : errno);
        return;
    }
    if ((size_t)n < want && !link->hup)
        link->readable = false;
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    in = str_of(c->hub->scratch, (size_t)n);
    if (c->partial.len > 0) {
        buf_add_str(&c->partial, in);
        in = buf_str(&c->partial);
    }
    if (c->answered)
        feed_body(c, in);
    else
        feed_head(c, in);
}

static void pump_down(struct conn *c, size_t *budget)
{
    while (c->state == CONN_RELAY) {
        bool taken;

        if (flow_parked(&c->down)) {
            if (flow_flush(&c->down, c->fd, &taken) != 0) {
                conn_close(c);
                return;
            }
            if (!taken) {
                park_moves(c, &c->down, false);
                return;
            }
        }
        if (c->down.done) {
            conn_finish(c);
            return;
        }
        if (c->link == NULL || c->link->state != LINK_OPEN || !c->link->readable || *budget == 0)
            return;
        read_down(c, budget);
    }
}

/* ------------------------------------------------------------------ the request's body */

/* A chunk that breaks the rules, or the body is too large. The worker has seen a part of it and
 * loses the connection. */
static void refuse_body(struct conn *c, const struct err *e)
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
            refuse_body(c, &e);
            return total;
        }
        if (c->up.chunked.total_bytes > (uint64_t)c->hub->config->max_body_bytes) {
            err_set(&e, ERR_BODY_TOO_LARGE, "the body is larger than %llu bytes",
                    (unsigned long long)c->hub->config->max_body_bytes);
            refuse_body(c, &e);
            return total;
        }
        if (used == 0)
            break; /* a part of a size line */
        total += used;
        if (iov.iov_len == 0)
            continue;
        metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, iov.iov_len);
        write_up(c, &iov, 1);
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

static void client_gone(struct conn *c)
{
    conn_close(c);
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
        client_gone(c);
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
        client_gone(c);
        return false;
    }
    c->piped_bytes = (size_t)n;
    c->up.left_bytes -= (size_t)n;
    c->up.done = c->up.left_bytes == 0;
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
    park_moves(c, &c->up, taken);
    return taken;
}

static void pump_up(struct conn *c, size_t *budget)
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

/* ------------------------------------------------------------------ turns */

static void run_again(struct loop_task *t)
{
    conn_run(CONTAINER_OF(t, struct conn, task));
}

/* Who is waited for now, and how long. */
static void set_deadline(struct conn *c)
{
    const struct config *config = c->hub->config;

    if (flow_parked(&c->down))
        conn_set_deadline(c, (uint64_t)config->send_timeout_ms);
    else if (!c->up.done && !c->up_broken && !flow_parked(&c->up) && c->piped_bytes == 0)
        conn_set_deadline(c, (uint64_t)config->body_timeout_ms);
    else
        conn_no_deadline(c);
}

void relay_pump(struct conn *c)
{
    size_t budget = HUB_TURN_BYTES;

    pump_up(c, &budget);
    if (c->state == CONN_RELAY && c->hup && c->up.done && c->link != NULL) {
        client_gone(c); /* it asked and left: nobody waits for the answer */
        return;
    }
    pump_down(c, &budget);
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
            unavailable(c, &e);
    }
    conn_run(c);
}
