/*
 * struct sliced_answer: a JSON answer about one session that is made and sent in slices, because
 * all of it at once would hold the loop up or take much memory.
 *
 *     sliced_answer_send -> slice -> it was all:  a plain answer, an error as an error
 *                                 -> more:        200, then a slice each time that the client has
 *                                                 taken the last one, in a turn of the loop of its
 *                                                 own; an error can only break the connection
 *
 * A slice is at most about 250 us of steps or 64 KB. The session stays in memory meanwhile.
 */
#ifndef RG_CONTROL_SLICED_ANSWER_H
#define RG_CONTROL_SLICED_ANSWER_H

#include "common/base/buf.h"
#include "common/os/loop.h"
#include "worker/service/service.h"

struct err;
struct session;

struct sliced_answer {
    struct service_request request; /* until the answer has started */
    struct session *session;        /* pinned */
    struct buf out;                 /* made, not yet sent */
    struct loop_task later;
    const char *broken; /* what the log says when it cannot go on */

    /* Appends to `out`. Returns 0 if there is more, 1 if that was all, -1 and e if it cannot go
     * on. */
    int (*step)(struct sliced_answer *a, struct err *e);

    /* Frees the struct around this one; what is here has been freed, but the session, which is
     * still pinned. */
    void (*free)(struct sliced_answer *a);
};

/* Answers r. a: step, free and broken are set, and out may have begun; the rest is zeroed. It is
 * freed when the answer is over, which may be at once. */
void sliced_answer_send(struct sliced_answer *a, const struct service_request *r,
                        struct session *s);

#endif
