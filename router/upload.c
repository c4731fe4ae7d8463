/* From the client's socket to the worker's link. flow.c frames the bodies. Long bodies with a
 * Content-Length are spliced through a pipe without copies. Bytes are read only as fast as the
 * worker accepts them, and bodies.c counts unfinished ones. */

#include "router/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "router/bodies.h"
#include "router/hub.h"
#include "router/upstreams.h"

enum {
    SPLICE_BYTES = 1 << 20,
    CHUNKS_MANY = 16384,
    CHUNK_LEAST = 16,    /* least average bytes of a chunk if there are more than CHUNKS_MANY */
    GATHER_MIN = 3 << 19 /* remaining bytes from which on many bytes are awaited at once */
};

/* Ends the upload: the worker accepts no more bytes. It may have answered nevertheless. */
static void up_broke(struct conn *c)
{
    c->upload = UPLOAD_ENDED;
    flow_clear(&c->up);
    c->link->readable = c->link->hup = true;
}

void upload_write(struct conn *c, struct iovec *iov, int n)
{
    bool taken;

    if (c->link->state != LINK_OPEN)
        flow_park(&c->up, iov, n);
    else if (flow_write(&c->up, c->link->fd, iov, n, 0, &taken) != 0)
        up_broke(c);
    else if (!taken)
        link_want_out(c->link, true);
}

enum verdict upload_refuse(struct conn *c)
{
    c->up.done = false; /* the rest of the body is not read */
    return conn_answered(c) ? VERDICT_CLOSE : VERDICT_REFUSE;
}

/* Keeps these bytes, which are being sent, for a second try. Drops all kept bytes if the request
 * gets too long for that. */
static void keep_more(struct conn *c, const struct iovec *iov)
{
    const size_t max = c->hops ? UPLOAD_HOP_KEPT_MAX : UPLOAD_KEPT_MAX;

    if (c->replay.len == 0)
        return;
    if (c->replay.len + iov->iov_len > max)
        buf_done(&c->replay);
    else
        buf_add(&c->replay, iov->iov_base, iov->iov_len);
}

/* Refuses a chunked body that is too long, or has very many tiny chunks: scanning them costs far
 * more than their bytes. */
static int check_chunks(const struct conn *c, struct err *e)
{
    const struct chunked *k = &c->up.chunked;
    uint64_t max = (uint64_t)c->hub->config->max_body_bytes;

    if (k->total_bytes > max)
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "the body is larger than --max-body-bytes allows (%llu bytes)",
                       (unsigned long long)max);
    if (k->size_lines > CHUNKS_MANY && k->total_bytes < (uint64_t)(k->size_lines - 1) * CHUNK_LEAST)
        return err_set(
            e, ERR_INVALID,
            "the body's chunks are too small: of more than %d they must have %d bytes on "
            "average",
            CHUNKS_MANY, CHUNK_LEAST);
    return 0;
}

/* Passes on body bytes of the client. Sets *ret to the number of consumed bytes. */
static enum verdict feed_up(struct conn *c, struct str in, size_t *ret, struct err *e)
{
    *ret = 0;
    while (*ret < in.len && !c->up.done && c->upload == UPLOAD_FLOWS) {
        struct iovec iov = {.iov_base = (char *)(uintptr_t)in.p + *ret};
        size_t used;

        if (flow_take(&c->up, str_sub(in, *ret, in.len), &used, &iov.iov_len, e) != 0)
            return upload_refuse(c);
        if (check_chunks(c, e) != 0)
            return upload_refuse(c);
        if (used == 0)
            break; /* an incomplete size line */
        *ret += used;
        if (iov.iov_len == 0)
            continue;
        bodies_take(c, iov.iov_len);
        metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, iov.iov_len);
        keep_more(c, &iov);
        upload_write(c, &iov, 1);
    }
    return VERDICT_MORE;
}

/* Passes on body bytes that arrived with the head. in_seen counts those that are incomplete. */
static enum verdict feed_up_kept(struct conn *c, struct err *e)
{
    size_t used;
    enum verdict v = feed_up(c, buf_str(&c->in), &used, e);

    if (v != VERDICT_MORE)
        return v;
    buf_consume(&c->in, used);
    c->in_seen = c->up.done ? 0 : c->in.len;
    return v;
}

/* Reads once from the client and passes the bytes on. */
static enum verdict read_up(struct conn *c, size_t *budget, struct err *e)
{
    size_t want = c->up.window_bytes, used;
    uint32_t lines = c->up.chunked.size_lines;
    enum verdict v;
    ssize_t n;

    do
        n = conn_read(c, c->hub->scratch, want);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return VERDICT_MORE;
    }
    if (n <= 0)
        return VERDICT_CLOSE; /* the client is gone */
    if ((size_t)n < want && !c->hup && !c->tls)
        c->readable = false;
    buf_add(&c->in, c->hub->scratch, c->in.len > 0 ? (size_t)n : 0);
    v = feed_up(c, c->in.len > 0 ? buf_str(&c->in) : str_of(c->hub->scratch, (size_t)n), &used, e);
    flow_spend(&c->up, lines, c->tls ? MAX_OF((size_t)n, HUB_TLS_READ_COST) : (size_t)n, budget);
    if (v != VERDICT_MORE)
        return v;
    if (c->in.len > 0)
        buf_consume(&c->in, used);
    else
        buf_add(&c->in, c->hub->scratch + used, (size_t)n - used);
    c->in_seen = c->in.len;
    return v;
}

/* Moves bytes of a long body into the pipe, without copying them through user space. */
static enum verdict splice_in(struct conn *c, size_t *budget)
{
    ssize_t n = flow_splice(&c->up, c->fd, SPLICE_BYTES);

    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        return VERDICT_MORE;
    }
    if (n <= 0)
        return VERDICT_CLOSE; /* the client is gone */
    bodies_take(c, (size_t)n);
    conn_gather(c, c->up.left_bytes >= GATHER_MIN && !c->body_trickles && bodies_may_gather(c));
    *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    metrics_count_at(c->hub->page, METRIC_relayed, METRIC_DIRECTION_UP, 0, (uint64_t)n);
    return VERDICT_MORE; /* upload_pump empties the pipe */
}

/* Reports whether the body may be spliced: nothing is buffered, and at least FLOW_SPLICE_MIN bytes
 * of known length remain. */
static bool may_splice(struct conn *c)
{
    if (c->tls || c->up.body != HTTP1_LENGTH || !c->link->unix_socket || c->in.len > 0)
        return false;
    if (c->up.pipe[0] >= 0)
        return true;
    return c->up.left_bytes >= FLOW_SPLICE_MIN && hub_take_pipe(c->hub, c->up.pipe) == 0;
}

/* Writes parked bytes first. Returns whether the worker accepts more. */
static bool flush_up(struct conn *c)
{
    bool taken;

    if (!flow_parked(&c->up))
        return true;
    if (flow_flush(&c->up, c->link->fd, &taken) != 0) {
        up_broke(c);
        return false;
    }
    link_want_out(c->link, !taken);
    return taken;
}

enum verdict upload_pump(struct conn *c, size_t *budget, struct err *e)
{
    enum verdict v = VERDICT_MORE;

    while (v == VERDICT_MORE && c->link != NULL && c->link->state == LINK_OPEN &&
           c->upload == UPLOAD_FLOWS && flush_up(c)) {
        bool kept = c->in.len > c->in_seen; /* bytes that arrived with the head */

        if (c->up.done || c->offered || (!kept && (!c->readable || *budget == 0)))
            return VERDICT_WAIT;
        if (kept)
            v = feed_up_kept(c, e);
        else if (may_splice(c))
            v = splice_in(c, budget);
        else
            v = read_up(c, budget, e);
    }
    return v == VERDICT_MORE ? VERDICT_WAIT : v;
}
