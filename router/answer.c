/* From the worker's link to the client: feed_head collects the final head, and relays or drops
 * interim answers before it. begin_answer writes the head with the first bytes of the body,
 * feed_body the rest. Bytes that the client does not accept are parked in c->down; the link is not
 * read until they are written. Each function returns a verdict (conn.h) instead of acting.
 * relay_pump alone decides whether the request is sent again, refused, or the connection closed. An
 * answer that breaks off is never completed, so that the client can see the end missing. */

#include "router/answer.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/client_tls.h"
#include "router/heads.h"
#include "router/hub.h"
#include "router/upstreams.h"

/* Writes to the client. Parks the bytes that the client does not accept. */
static enum verdict write_down(struct conn *c, struct iovec *iov, int n, int flags)
{
    bool taken;

    if (flow_write(&c->down, c->fd, iov, n, flags, &taken) != 0)
        return VERDICT_CLOSE;
    if (!taken)
        conn_want_out(c);
    return VERDICT_MORE;
}

/* Returns the flags of send(2) for bytes of the answer. MSG_MORE for the last ones, if the
 * connection ends with the answer: the kernel sends them in one segment with the end. */
static int write_flags(const struct conn *c)
{
    return c->down.done && c->closing ? MSG_MORE : 0;
}

enum { MISDIRECTED = 421 }; /* status of a node that does not own the place */

/* ------------------------------------------------------------------ failures of the worker */

static void blame_worker(const struct conn *c, const char *what)
{
    hub_blame_worker(c->hub, c->session, (int)c->link->upstream, what);
}

/* Ends a broken answer: received bytes are still sent, but no end of the answer. */
static enum verdict cut_answer(struct conn *c)
{
    blame_worker(c, "the session-worker broke its answer off");
    c->answer = ANSWER_CUT;
    c->down.done = true;
    link_close(c->link);
    c->link = NULL;
    return VERDICT_MORE;
}

/* Reports whether the worker cannot have acted on the request: it did not get the whole request, or
 * reported that it retires and closed, or left the request unread. A node of the fleet that dies
 * also resets a link whose request it has read. Its reset counts only if the request may be served
 * twice, or the link was an old one. */
static bool cannot_have_acted(const struct conn *c, int sys)
{
    bool unread = sys == ECONNRESET || sys == EPIPE;

    return !c->up.done || c->link->retires ||
           (unread && (!c->hops || c->repeatable || c->link->reused));
}

/* Handles the end of the link before the answer is complete: end of file (sys 0) or an error. */
static enum verdict link_ended(struct conn *c, int sys, struct err *e)
{
    if (conn_answered(c) && c->down.body == HTTP1_UNTIL_CLOSE && sys == 0) {
        c->down.done = true;
        c->link->keeps = false;
        return VERDICT_MORE;
    }
    if (conn_answered(c))
        return cut_answer(c);
    (void)err_set(e, ERR_WORKER_UNAVAILABLE, "the session-worker ended before it answered");
    if (c->partial.len == 0 && (cannot_have_acted(c, sys) || (c->hops && c->repeatable)))
        return VERDICT_LOST;
    blame_worker(c, e->text);
    return VERDICT_REFUSE;
}

/* Handles bytes of the worker that are not a valid answer. */
static enum verdict refuse_malformed(struct conn *c, struct err *e)
{
    if (conn_answered(c))
        return cut_answer(c);
    (void)err_set(e, ERR_WORKER_INVALID, "the session-worker sent a malformed answer");
    blame_worker(c, e->text);
    return VERDICT_REFUSE;
}

/* ------------------------------------------------------------------ the answer */

/* Releases the link after the whole answer. The link is reused if request and answer are complete.
 * If the worker wants a confirmation, waits until the client's socket has accepted all, and
 * confirms. */
static void answer_complete(struct conn *c)
{
    struct link *link = c->link;
    bool asked = c->up.done && c->upload == UPLOAD_FLOWS && !flow_parked(&c->up);

    if (c->confirms && flow_parked(&c->down))
        return;
    c->link = NULL;
    if (asked && c->confirms && !link_confirm(link))
        asked = false;
    if (asked && link->keeps && !link->hup)
        link_release(link);
    else
        link_close(link);
}

/* Keeps bytes of the worker that are incomplete without the next ones. `in` may point into
 * c->partial. */
static void keep_partial(struct conn *c, struct str in)
{
    struct buf rest = {0};

    if (in.len > 0)
        buf_add_str(&rest, in);
    buf_done(&c->partial);
    c->partial = rest;
}

/* Relays the next body bytes of the worker. */
static enum verdict feed_body(struct conn *c, struct str in, struct err *e)
{
    while (in.len > 0 && !c->down.done) {
        size_t used, pass;

        if (flow_take(&c->down, in, &used, &pass, e) != 0)
            return refuse_malformed(c, e);
        if (pass > 0) {
            struct iovec iov = {.iov_base = (char *)(uintptr_t)in.p, .iov_len = pass};

            if (write_down(c, &iov, 1, write_flags(c)) == VERDICT_CLOSE)
                return VERDICT_CLOSE;
            metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_DOWN, 0, pass);
        }
        in = str_sub(in, used, in.len);
        if (used == 0)
            break; /* an incomplete size line */
    }
    if (!c->down.done) {
        keep_partial(c, in);
        return VERDICT_MORE;
    }
    if (in.len > 0)
        c->link->keeps = false; /* bytes after the answer */
    answer_complete(c);
    return VERDICT_MORE;
}

/* Relays a 1xx, unless the client speaks HTTP/1.0. 101 is an error, because no upgrade was
 * requested. */
static enum verdict interim_answer(struct conn *c, const struct http1_head *h, const char *in,
                                   struct err *e)
{
    struct iovec iov[HEADS_IOV];

    if (h->status == 101)
        return refuse_malformed(c, e);
    if (h->status == HTTP1_RETIRING) {
        c->link->retires = true; /* this request may still be answered */
        return VERDICT_MORE;
    }
    if (h->status == 100 && c->offered) {
        c->offered = false;
        buf_done(&c->replay); /* the body follows, which is not kept */
        if (!c->expects)
            return VERDICT_MORE;
    }
    c->answer = ANSWER_INTERIM;
    return c->old ? VERDICT_MORE : write_down(c, iov, heads_interim(h, in, iov), 0);
}

/* Writes the final head, which is at the start of `in`, with the first bytes of the body, in one
 * write. */
static enum verdict begin_answer(struct conn *c, const struct http1_head *h, struct str in,
                                 struct err *e)
{
    struct str rest = str_sub(in, h->len_bytes, in.len);
    char extra[HEADS_EXTRA], id[HUB_REQUEST_ID_MAX];
    struct iovec iov[HEADS_IOV];
    struct heads_answer ours;
    size_t used, pass;
    int n;

    flow_begin(&c->down, h->body, h->length);
    c->down.strip = c->old;
    if (flow_take(&c->down, rest, &used, &pass, e) != 0)
        return refuse_malformed(c, e);
    c->status = h->status;
    c->link->keeps = h->keep_alive && h->body != HTTP1_UNTIL_CLOSE && !c->link->retires;
    c->closing = c->closing || h->body == HTTP1_UNTIL_CLOSE || !c->up.done ||
                 (c->old && h->body == HTTP1_CHUNKED) || c->hub->draining;
    c->answer = ANSWER_BEGUN;
    buf_done(&c->replay);
    ours = (struct heads_answer){.closing = c->closing, .old = c->old};
    if (h->at[HTTP1_REQUEST_ID] == 0)
        ours.request_id = hub_request_id(c->hub, id);
    n = heads_answer(h, in.p, &ours, extra, iov);
    if (pass > 0)
        iov[n++] = (struct iovec){.iov_base = (char *)(uintptr_t)rest.p, .iov_len = pass};
    if (write_down(c, iov, n, write_flags(c)) == VERDICT_CLOSE)
        return VERDICT_CLOSE;
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_DOWN, 0, pass);
    return feed_body(c, str_sub(rest, used, rest.len), e);
}

/* Reads heads until the final one is complete. */
static enum verdict feed_head(struct conn *c, struct str in, struct err *e)
{
    struct http1_head *h = c->hub->head;
    size_t max = (size_t)c->hub->config->max_header_bytes;
    enum verdict v = VERDICT_MORE;

    while (v == VERDICT_MORE) {
        int r = http1_response(h, in, 0, max, c->head_request, e);

        if (r == 0) {
            keep_partial(c, in);
            return VERDICT_MORE;
        }
        if (r < 0)
            return refuse_malformed(c, e);
        if (h->status == MISDIRECTED && c->hops) {
            c->hold.misdirected = true;
            return VERDICT_LOST;
        }
        if (h->status >= 200)
            return begin_answer(c, h, in, e);
        v = interim_answer(c, h, in.p, e);
        in = str_sub(in, h->len_bytes, in.len);
    }
    return v;
}

/* Reads once from the worker and relays the bytes. */
static enum verdict read_down(struct conn *c, size_t *budget, struct err *e)
{
    struct link *link = c->link;
    size_t want = c->down.window_bytes;
    uint32_t lines = c->down.chunked.size_lines;
    enum verdict v;
    struct str in;
    ssize_t n;

    do
        n = recv(link->fd, c->hub->scratch, want, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        link->readable = false;
        return VERDICT_MORE;
    }
    if (n <= 0)
        return link_ended(c, n == 0 ? 0 : errno, e);
    if ((size_t)n < want && !link->hup)
        link->readable = false;
    in = str_of(c->hub->scratch, (size_t)n);
    if (c->partial.len > 0) {
        buf_add_str(&c->partial, in);
        in = buf_str(&c->partial);
    }
    v = conn_answered(c) ? feed_body(c, in, e) : feed_head(c, in, e);
    flow_spend(&c->down, lines, (size_t)n, budget);
    return v;
}

/* Reports whether the body may be spliced: nothing is parked, and at least FLOW_SPLICE_MIN bytes of
 * known length remain. */
static bool may_splice(struct conn *c)
{
    if (c->tls || !conn_answered(c) || c->down.body != HTTP1_LENGTH || !c->link->unix_socket ||
        c->partial.len > 0)
        return false;
    if (c->down.pipe[0] >= 0)
        return true;
    return c->down.left_bytes >= FLOW_SPLICE_MIN && hub_take_pipe(c->hub, c->down.pipe) == 0;
}

/* Reports whether the worker has sent neither bytes after the answer nor its end. */
static bool is_quiet(struct link *link)
{
    char byte;

    link->readable = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
    return !link->readable;
}

/* Moves bytes of a long body into the pipe, without copying them through user space. */
static enum verdict splice_down(struct conn *c, size_t *budget, struct err *e)
{
    ssize_t n = flow_splice(&c->down, c->link->fd, c->down.window_bytes);

    if (n < 0 && errno == EAGAIN) {
        c->link->readable = false;
        return VERDICT_MORE;
    }
    if (n <= 0)
        return link_ended(c, n == 0 ? 0 : errno, e);
    if (c->down.done && !is_quiet(c->link))
        c->link->keeps = false; /* bytes after the answer */
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_DOWN, 0, (uint64_t)n);
    return VERDICT_MORE; /* answer_pump empties the pipe */
}

/* Writes parked bytes first. Returns MORE if none remain. */
static enum verdict flush_down(struct conn *c)
{
    bool taken;

    if (!flow_parked(&c->down))
        return VERDICT_MORE;
    if (flow_flush(&c->down, c->fd, &taken) != 0)
        return VERDICT_CLOSE;
    if (taken)
        return VERDICT_MORE;
    conn_want_out(c);
    return VERDICT_WAIT;
}

/* Sends the TLS end of the connection, but only after a whole answer. */
static enum verdict send_tls_end(struct conn *c)
{
    c->farewell = c->answer != ANSWER_CUT && conn_ends(c) && !client_tls_end(c);
    if (!c->farewell)
        return VERDICT_OVER;
    conn_want_out(c);
    return VERDICT_WAIT;
}

enum verdict answer_pump(struct conn *c, size_t *budget, struct err *e)
{
    enum verdict v = flush_down(c);

    while (v == VERDICT_MORE) {
        if (c->down.done) {
            if (c->link != NULL)
                answer_complete(c);
            return c->tls ? send_tls_end(c) : VERDICT_OVER;
        }
        if (c->link == NULL || c->link->state != LINK_OPEN || !c->link->readable || *budget == 0)
            return VERDICT_WAIT;
        v = may_splice(c) ? splice_down(c, budget, e) : read_down(c, budget, e);
        if (v == VERDICT_MORE)
            v = flush_down(c);
    }
    return v;
}

void answer_accept(struct conn *c)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = {.iov_base = (char *)(uintptr_t)line, .iov_len = sizeof(line) - 1};

    (void)write_down(c, &iov, 1, 0); /* if the client is gone, reading its body shows it */
}
