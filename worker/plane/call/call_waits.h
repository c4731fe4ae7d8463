/*
 * struct call_waits: what of a running call waits for the loop. In the call's arena, for
 * model_call.c, running_calls.c and ended_calls.c.
 */
#ifndef RG_CALL_CALL_WAITS_H
#define RG_CALL_CALL_WAITS_H

#include "common/os/loop.h"
#include "common/os/task.h"

struct model_call;

struct call_waits {
    struct model_call *model_call;
    struct waiter changed;    /* model_call_wake */
    struct loop_timer rejoin; /* without listeners: the time for a retry */
};

#endif
