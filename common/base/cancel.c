/* The flag's pointer, one for each thread, and the text of ERR_CANCELLED. common/os/helpers.c sets
 * the pointer around each job. */
#include "common/base/cancel.h"

_Thread_local const atomic_bool *cancel_flag;

int cancel_fail(struct err *e)
{
    return err_set(e, ERR_CANCELLED, "the work was given up");
}
