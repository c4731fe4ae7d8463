/*
 * struct call_timers: what of a running call waits for the loop. In the call's arena, for
 * model_call.c and running_calls.c.
 */
#ifndef RG_CALL_CALL_TIMERS_H
#define RG_CALL_CALL_TIMERS_H

#include "common/os/loop.h"

struct model_call;

struct call_timers {
    struct model_call *model_call;
    struct loop_timer rejoin; /* nobody listens: the time for a retry */
    struct loop_task take;    /* more of answers that came whole is to be taken */
    struct loop_task part;    /* a step of many parts goes on with the next one */
    struct loop_task repeat;  /* a listener that joined is to be told more of what came before */
    struct loop_task fail;    /* it has failed, and is told so at the end of the turn of the loop */
};

#endif
