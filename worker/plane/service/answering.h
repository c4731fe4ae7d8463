/*
 * struct answering: the answer of one request, made by a task (common/os/task.h). The exchange is
 * retained, so the request's head stays readable and answers to a client that left go nowhere.
 *
 *     answering_start(r, fn, ctx)          runs fn(a, ctx) in a task
 *       answering_flow(a, e)               after each piece of a->out: sends, waits, pauses
 *       answering_end(a)                   the end of the answer
 *       answering_fail(a, what, e)         or an error
 *
 * When the client leaves, the task is cancelled. The body of the request (service_request.body) is
 * gone after the first pause: the handler takes what it needs before answering_start.
 */
#ifndef RG_SERVICE_ANSWERING_H
#define RG_SERVICE_ANSWERING_H

#include "common/base/buf.h"
#include "common/os/task.h"
#include "worker/plane/service/service.h"

struct dialect;

struct answering {
    struct service_request request; /* a copy; its strings are of this block */
    struct buf out;                 /* made, not yet sent */
    const char *type;               /* type of the content; JSON unless fn sets another */
    const struct dialect *errors;   /* in whose shape errors are; NULL: OpenAI's */
    _Atomic uint64_t body_hash;     /* for the log if a thread hangs; 0: unknown */
    bool reads_body;                /* a thread reads the body of the request */
    bool left;                      /* the client has gone, or has all of the answer */

    bool begun, ended, delivered; /* own */
    struct task *task;
    struct waiter changed;
    void (*fn)(struct answering *a, void *ctx);
    void *ctx;
};

void answering_start(const struct service_request *r, void (*fn)(struct answering *a, void *ctx),
                     void *ctx);

/* Sends `out` if it has 64 KiB, waits while the client is slow, and pauses. */
MAY_PAUSE RG_MUSTCHECK int answering_flow(struct answering *a, struct err *e);

/* Sends what is left of `out`: a whole answer if nothing was sent so far. */
void answering_end(struct answering *a);

/* Like answering_end, but returns when the answer is over: true if the client has all of it. */
MAY_PAUSE bool answering_end_wait(struct answering *a);

/* Answers the error. If the answer has begun, logs `what` and breaks the connection. Does nothing
 * for ERR_CANCELLED. */
void answering_fail(struct answering *a, const char *what, const struct err *e);

/* The body of the request stays in memory between these, for a thread that reads it. */
void answering_hold_body(struct answering *a);
void answering_release_body(struct answering *a);

#endif
