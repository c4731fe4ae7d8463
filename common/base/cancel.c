#include "common/base/cancel.h"

_Thread_local const atomic_bool *cancel_flag;

int cancel_fail(struct err *e)
{
    return err_set(e, ERR_CANCELLED, "the work was given up");
}
