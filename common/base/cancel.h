/* The flag of cancelled work. Long pure work calls cancel_wanted() in each step of a loop whose
 * length a client chooses. If it returns true, the work stops with ERR_CANCELLED. The owner of a
 * thread points cancel_flag at a flag that other threads may set. On other threads cancel_flag is
 * NULL and no work is cancelled. */
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

/* Sets the error of cancelled work. Returns -1. */
int cancel_fail(struct err *e);

#endif
