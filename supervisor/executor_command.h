/*
 * The local executor's own program (local_executor.h): this binary again, as `rollgate runner`,
 * with our address, a key of its own, and folders below the state folder.
 */
#ifndef RG_SUPERVISOR_EXECUTOR_COMMAND_H
#define RG_SUPERVISOR_EXECUTOR_COMMAND_H

#include <sys/types.h>

#include "common/base/attrs.h"

struct supervisor;

/* In the forked child: becomes the executor, or exits with 1 and a line in the log. key "": it is
 * given none. parent: our own pid, without which it is not to live. */
RG_NORETURN void executor_command_run(const struct supervisor *s, const char *key, pid_t parent);

#endif
