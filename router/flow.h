/*
 * struct flow: one direction of an exchange, from a source socket to a sink socket: the framing of
 * the body, and the bytes that the sink has refused so far. Bytes are read into the hub's scratch,
 * scanned and written at once. Bytes that the sink does not accept are parked here, and the source
 * is not read until they are written. So a direction holds at most one read (its window). The
 * window shrinks when the sink is slow, and grows when it accepts all.
 *
 * Long bodies of known length between a Unix socket and a different socket pass through a pipe
 * instead, without copies (flow_splice). Bytes that the sink refuses stay in the pipe.
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
    uint64_t left_bytes; /* HTTP1_LENGTH: bytes that the source still has to send */
    struct chunked chunked;
    struct buf parked;
    size_t parked_at;     /* number of parked bytes that are already written */
    size_t window_bytes;  /* size of the next read */
    size_t taken_bytes;   /* bytes that the sink accepted since it last refused some */
    uint64_t given_bytes; /* bytes of all bodies that the sink has accepted */
    int pipe[2];          /* from hub_take_pipe; -1: no pipe */
    size_t piped_bytes;   /* bytes in the pipe */
    struct tls *tls;      /* TLS of the sink's socket; NULL: no TLS */
    bool done;            /* the source has sent everything */
    bool strip;           /* chunked, for a sink that does not know it: pass only the payload */
};

enum { FLOW_SPLICE_MIN = 256 * 1024 }; /* shorter bodies are copied */

/* Prepares a flow without body and pipe. */
void flow_init(struct flow *f);

/* Begins a new body. Parked bytes and the pipe stay. */
void flow_begin(struct flow *f, enum http1_body body, uint64_t length);

/* Frees parked bytes. Bytes in the pipe stay. */
void flow_clear(struct flow *f);

/* Reports whether bytes wait for the sink. */
static inline bool flow_parked(const struct flow *f)
{
    return f->parked.len > f->parked_at || f->piped_bytes > 0;
}

/* Consumes *ret_used bytes of the body from `in`. The first *ret_pass of them must be passed on,
 * the others are dropped. Sets done with the last byte; call it again until then. Returns 0, or -1
 * with ERR_INVALID. */
int flow_take(struct flow *f, struct str in, size_t *ret_used, size_t *ret_pass, struct err *e);

/* Subtracts the cost of a read of n bytes from the budget: the bytes, and the time for the chunks
 * that began in it. `lines`: number of size lines before the read. */
void flow_spend(const struct flow *f, uint32_t lines, size_t n, size_t *budget);

/* Writes iov to fd, after the parked bytes. Parks what the sink refuses. flags: of send(2);
 * MSG_MORE for bytes that the end of the connection follows. Sets *ret_taken if the sink accepted
 * all. Returns 0, or -1 with errno if the sink is broken. */
int flow_write(struct flow *f, int fd, struct iovec *iov, int n, int flags, bool *ret_taken);

/* Parks bytes without writing. */
void flow_park(struct flow *f, const struct iovec *iov, int n);

/* Writes the parked bytes. Returns as flow_write does. */
int flow_flush(struct flow *f, int fd, bool *ret_taken);

/* Moves at most `most` bytes of a body of known length from fd into the pipe, which must be present
 * and empty. flow_flush writes them. Sets done with the last byte. Returns the number of bytes, 0
 * if the source has ended, or -1 with errno. */
ssize_t flow_splice(struct flow *f, int fd, size_t most);

#endif
