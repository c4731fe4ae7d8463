/*
 * The program of the local executor (local_executor.h): this binary, as `rollgate runner`, with our
 * address, a key of its own, and folders below the state folder.
 */
#ifndef RG_SUPERVISOR_EXECUTOR_COMMAND_H
#define RG_SUPERVISOR_EXECUTOR_COMMAND_H

#include <sys/types.h>

#include "common/base/attrs.h"

struct supervisor;

/* Becomes the executor, in the forked child, or exits with 1 and a log line. key: the executor's
 * key; "": no key is needed. parent: our own pid; the executor ends with us. */
RG_NORETURN void executor_command_run(const struct supervisor *s, const char *key, pid_t parent);

#endif
