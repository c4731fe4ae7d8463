/*
 * struct call_work: the long work of a model call, its step RENDER. In the call's arena.
 */
#ifndef RG_CALL_CALL_WORK_H
#define RG_CALL_CALL_WORK_H

#include "worker/call/work.h"

struct model_call;

struct call_work {
    struct long_work work;
    struct model_call *call;
};

#endif
