/*
 * Long pure work asks cancel_wanted() now and then (each step of a loop whose length a client
 * chooses) and gives up with ERR_CANCELLED when it is. Who runs work in a thread of its own points
 * cancel_flag at the flag that others may set; elsewhere it is NULL and nothing is ever cancelled.
 */
#ifndef RG_BASE_CANCEL_H
#define RG_BASE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/attrs.h"
#include "common/base/err.h"

extern _Thread_local const atomic_bool *cancel_flag;

static inline bool cancel_wanted(void)
{
    return RG_UNLIKELY(cancel_flag != NULL) &&
           atomic_load_explicit(cancel_flag, memory_order_relaxed);
}

/* The error of work that was given up. Always -1. */
int cancel_fail(struct err *e);

#endif
