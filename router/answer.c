#include "router/answer.h"

#include <errno.h>
#include <sys/socket.h>

#include "router/heads.h"
#include "router/relay.h"

/* Stays asked for: TCP tells only after a refusal. */
static void want_out(struct conn *c)
{
    loop_mod(c->hub->loop, &c->io, LOOP_IN | LOOP_RDHUP | LOOP_OUT);
}

static void write_down(struct conn *c, struct iovec *iov, int n)
{
    bool taken;

    if (flow_write(&c->down, c->fd, iov, n, &taken) != 0)
        conn_close(c);
    else if (!taken)
        want_out(c);
}

/* ------------------------------------------------------------------ failures of the worker */

static void cut_answer(struct conn *c)
{
    relay_blame_worker(c, "the session-worker broke its answer off");
    c->truncated = true;
    c->down.done = true;
    link_close(c->link);
    c->link = NULL;
}

/* It has not been sent the whole request, said that it retires and closed, or left it unread. */
static bool cannot_have_acted(const struct conn *c, int sys)
{
    return !c->up.done || c->handed_back || sys == ECONNRESET || sys == EPIPE;
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
    if (c->partial.len == 0 && cannot_have_acted(c, sys) && relay_resend(c))
        return;
    err_set(&e, ERR_WORKER_UNAVAILABLE, "the session-worker ended before it answered");
    relay_unavailable(c, &e);
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
    relay_unavailable(c, e);
}

/* ------------------------------------------------------------------ the answer */

/* All of the answer is here. The link goes back to the others when both sides are through; one
 * whose answers are confirmed not before the client's socket has taken all. A worker that retires
 * is told, too. */
static void answer_complete(struct conn *c)
{
    struct link *link = c->link;
    bool asked = c->up.done && !c->up_broken && !flow_parked(&c->up) && c->piped_bytes == 0;

    if (c->confirms && flow_parked(&c->down))
        return;
    c->link = NULL;
    if (asked && c->confirms && !link_confirm(link))
        asked = false;
    if (asked && c->link_reusable && !link->hup)
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
    c->link_reusable = c->link_reusable && (!c->down.done || in.len == 0); /* unasked bytes */
    if (c->down.done && c->link != NULL)
        answer_complete(c);
    else if (!c->down.done)
        keep_partial(c, in);
}

/* A 1xx goes to clients that know it; 101 is nothing we asked for. */
static int interim_answer(struct conn *c, const struct http1_head *h, const char *in)
{
    struct iovec iov[HEADS_IOV];

    if (h->status == 101)
        return -1;
    if (h->status == HTTP1_RETIRING) {
        c->handed_back = true; /* unless it is answered now */
        return 0;
    }
    c->interim = true;
    if (c->old)
        return 0;
    write_down(c, iov, heads_interim(h, in, iov));
    return 0;
}

/* The final head at the start of `in`, and what of the body came with it, in one write. */
static void begin_answer(struct conn *c, const struct http1_head *h, struct str in)
{
    struct str rest = str_sub(in, h->len_bytes, in.len);
    char extra[HEADS_EXTRA], id[HUB_REQUEST_ID_MAX];
    struct iovec iov[HEADS_IOV];
    struct heads_answer ours;
    size_t used, pass;
    struct err e;
    int n;

    flow_begin(&c->down, h->body, h->length);
    c->down.strip = c->old;
    if (flow_take(&c->down, rest, &used, &pass, &e) != 0) {
        link_lied(c, &e);
        return;
    }
    c->status = h->status;
    c->link_reusable = h->keep_alive && h->body != HTTP1_UNTIL_CLOSE && !c->handed_back;
    c->closing = c->closing || h->body == HTTP1_UNTIL_CLOSE || !c->up.done ||
                 (c->old && h->body == HTTP1_CHUNKED) || c->hub->draining;
    c->answered = true;
    buf_done(&c->replay);
    ours = (struct heads_answer){.closing = c->closing, .old = c->old};
    if (h->at[HTTP1_REQUEST_ID] == 0)
        ours.request_id = hub_request_id(c->hub, id);
    n = heads_answer(h, in.p, &ours, extra, iov);
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

void answer_pump(struct conn *c, size_t *budget)
{
    while (c->state == CONN_RELAY) {
        bool taken;

        if (flow_parked(&c->down)) {
            if (flow_flush(&c->down, c->fd, &taken) != 0) {
                conn_close(c);
                return;
            }
            if (!taken) {
                want_out(c);
                return;
            }
        }
        if (c->down.done) {
            if (c->link != NULL)
                answer_complete(c);
            conn_finish(c);
            return;
        }
        if (c->link == NULL || c->link->state != LINK_OPEN || !c->link->readable || *budget == 0)
            return;
        read_down(c, budget);
    }
}
