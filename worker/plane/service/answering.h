/*
 * struct answering: the answer of one request, made by a task (common/os/task.h). The exchange is
 * retained, so the request's head stays readable, and answers to a client that has left are
 * dropped.
 *
 *     answering_start(r, fn, ctx)          runs fn(a, ctx) in a task
 *       answering_flow(a, e)               after each piece of a->out: sends, waits, pauses
 *       answering_end(a)                   the end of the answer
 *       answering_fail(a, what, e)         or an error
 *
 * When the client leaves, the task is cancelled. The body of the request (service_request.body) is
 * freed at the first pause: the handler takes what it needs before answering_start.
 */
#ifndef RG_SERVICE_ANSWERING_H
#define RG_SERVICE_ANSWERING_H

#include "common/base/buf.h"
#include "common/os/task.h"
#include "worker/plane/service/service.h"

struct dialect;

struct answering {
    struct service_request request; /* a copy; its strings are in this block */
    struct buf out;                 /* bytes that are made but not sent yet */
    const char *type;               /* content type; JSON unless fn sets a different one */
    int status; /* 200 unless fn sets a different one, of an answer in one piece */
    const struct dialect *errors; /* dialect of errors; NULL: OpenAI's */
    /* hash of the body, for the log if a thread hangs; 0: unknown */
    _Atomic uint64_t body_hash;
    bool reads_body; /* a thread reads the body of the request */
    bool left;       /* the client has left, or the whole answer was delivered */

    bool begun, ended, delivered; /* own */
    struct task *task;
    struct waiter changed;
    uint64_t slack_ms; /* time that the client may be later than --min-body-rate */
    MAY_PAUSE void (*fn)(struct answering *a, void *ctx);
    void *ctx;
};

void answering_start(const struct service_request *r, void (*fn)(struct answering *a, void *ctx),
                     void *ctx);

/* Sends `out` if it has 64 KiB, waits while the client is slow, and pauses. A client that reads
 * less than --min-body-rate for --send-timeout is cut: returns -1 with ERR_CANCELLED. */
MAY_PAUSE RG_MUSTCHECK int answering_flow(struct answering *a, struct err *e);

/* Sends the rest of `out`, or the whole answer if nothing was sent so far. */
void answering_end(struct answering *a);

/* Like answering_end, but returns when the answer was sent or the client has left or was cut: true
 * if the answer was delivered (exchange_closed_fn). */
MAY_PAUSE bool answering_end_wait(struct answering *a);

/* Answers the error. If the answer has begun, logs `what` and breaks the connection. Does nothing
 * for ERR_CANCELLED. */
void answering_fail(struct answering *a, const char *what, const struct err *e);

/* Between these two calls the request's body stays in memory, for a thread that reads it. */
void answering_hold_body(struct answering *a);
void answering_release_body(struct answering *a);

#endif
