/*
 * The local executor's own program (local_executor.h): this binary again, as `rollgate runner`,
 * with our address, a key of its own, and folders below the state folder.
 */
#ifndef RG_SUPERVISOR_EXECUTOR_COMMAND_H
#define RG_SUPERVISOR_EXECUTOR_COMMAND_H

#include <sys/types.h>

#include "common/base/attrs.h"

struct supervisor;

/* Becomes the executor, in the forked child, or exits with 1 and a log line. key: the key that it
 * gets; "": none. parent: our own pid, with which the executor ends. */
RG_NORETURN void executor_command_run(const struct supervisor *s, const char *key, pid_t parent);

#endif
