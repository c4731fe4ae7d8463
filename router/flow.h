/*
 * struct flow: one direction of an exchange, from a source socket to a sink socket: the framing of
 * the body that passes, and what the sink has refused so far. Bytes are read into the hub's
 * scratch, scanned and written at once; only what the sink does not take is parked here, and then
 * the source is not read before it is gone. So a direction holds at most one read (its window),
 * which shrinks when the sink is slow and grows again when it takes all.
 *
 * Long bodies of known length between a Unix socket and another one pass through a pipe instead,
 * uncopied (flow_splice). What the sink refuses of them stays in the pipe.
 */
#ifndef RG_ROUTER_FLOW_H
#define RG_ROUTER_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/base/buf.h"
#include "common/net/chunked.h"
#include "common/net/http1.h"

struct tls;

struct flow {
    enum http1_body body;
    uint64_t left_bytes; /* HTTP1_LENGTH: still to come from the source */
    struct chunked chunked;
    struct buf parked;
    size_t parked_at;     /* bytes of parked that are already written */
    size_t window_bytes;  /* of the next read */
    size_t taken_bytes;   /* by the sink since it last refused some */
    uint64_t given_bytes; /* to the sink, of all bodies so far */
    int pipe[2];          /* the hub's (hub_take_pipe), -1: none */
    size_t piped_bytes;   /* that lie in it */
    struct tls *tls;      /* that the sink speaks, over its socket; NULL: none */
    bool done;            /* the source has given everything */
    bool strip;           /* chunked, for a sink that does not know it: pass the payload only */
};

enum { FLOW_SPLICE_MIN = 256 * 1024 }; /* shorter rests are copied */

/* Of a connection: nothing flows, there is no pipe. */
void flow_init(struct flow *f);

/* A new body; parked bytes stay, and so does the pipe. */
void flow_begin(struct flow *f, enum http1_body body, uint64_t length);

/* Parked memory back; what lies in the pipe stays there. */
void flow_clear(struct flow *f);

/* Whether bytes wait for the sink. */
static inline bool flow_parked(const struct flow *f)
{
    return f->parked.len > f->parked_at || f->piped_bytes > 0;
}

/* Takes *ret_used bytes of the body off `in`: the first *ret_pass go on, the others are dropped.
 * Sets done with the last one. Call again for the rest while not done. 0, -1 with ERR_INVALID. */
int flow_take(struct flow *f, struct str in, size_t *ret_used, size_t *ret_pass, struct err *e);

/* Takes what a read of n bytes has cost off the budget: the bytes, and what it takes to look at the
 * chunks that began in it. `lines`: how many size lines there were before. */
void flow_spend(const struct flow *f, uint32_t lines, size_t n, size_t *budget);

/* Writes iov to fd, behind what is parked; what is refused is parked. flags: of send(2), MSG_MORE
 * for bytes that the end of the connection follows. 0, -1 when the sink is broken (errno).
 * *ret_taken: all was taken. */
int flow_write(struct flow *f, int fd, struct iovec *iov, int n, int flags, bool *ret_taken);

/* Parks without writing. */
void flow_park(struct flow *f, const struct iovec *iov, int n);

/* Writes what is parked. As flow_write. */
int flow_flush(struct flow *f, int fd, bool *ret_taken);

/* Takes at most `most` bytes of a body of known length from fd into the pipe, which must be there
 * and empty; flow_flush gives them on. Returns how many, sets done with the last; 0: the source has
 * ended; -1 with errno. */
ssize_t flow_splice(struct flow *f, int fd, size_t most);

#endif
