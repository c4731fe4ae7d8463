/*
 * struct call_waits: what wakes a running call from the loop. In the call's arena; used by
 * model_call.c, running_calls.c and ended_calls.c.
 */
#ifndef RG_CALL_CALL_WAITS_H
#define RG_CALL_CALL_WAITS_H

#include "common/os/loop.h"
#include "common/os/task.h"

struct model_call;

struct call_waits {
    struct model_call *model_call;
    struct waiter changed; /* woken by model_call_wake */
    /* runs while the call has no listeners: the time that a retry has to join */
    struct loop_timer rejoin;
};

#endif
