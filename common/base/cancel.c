/*
 * Holds what must exist once in the program: the flag's pointer, one for each thread
 * (common/os/helpers.c sets it around each job), and the one text of the error, so that whoever
 * reads ERR_CANCELLED in a log reads the same words.
 */
#include "common/base/cancel.h"

_Thread_local const atomic_bool *cancel_flag;

int cancel_fail(struct err *e)
{
    return err_set(e, ERR_CANCELLED, "the work was given up");
}
