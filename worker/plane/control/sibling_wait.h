/* Requests of a task to one other worker or node. The task waits for the answer. */
#ifndef RG_CONTROL_SIBLING_WAIT_H
#define RG_CONTROL_SIBLING_WAIT_H

#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/err.h"

struct service;
struct sibling_question;

struct sibling_answer {
    int status; /* 0: there is no answer, with the reason in err */
    struct buf body;
    struct err err;
};

/* Asks the worker of that index, or the node with that slot (the other one is NULL), and waits.
 * Keeps the memory of ret->body for the answer. Returns -1 if the task is cancelled. */
MAY_PAUSE int sibling_wait(struct service *a, const uint32_t *index, const uint32_t *slot,
                           const struct sibling_question *q, struct sibling_answer *ret,
                           struct err *e);

#endif
