/*
 * Locks of files and folders (flock), which keep a second process out. A file system that
 * refuses them is an error, unless the settings allow it (--unlocked-state).
 */
#ifndef RG_OS_FILE_LOCK_H
#define RG_OS_FILE_LOCK_H

#include <stdbool.h>

#include "common/base/err.h"

/* Whether this process, and those that it forks, go on without a lock that is refused. */
void file_lock_allow_none(bool allow);

/* Locks the open file until its descriptor is closed. Returns 0; or 1 if another process has the
 * lock (never with `wait`); or -1 and ERR_IO if the file system refuses locks. `what` names the
 * file in the error. */
int file_lock(int fd, bool wait, const char *what, struct err *e);

/* Locks like file_lock, but never waits and has no regard to --unlocked-state. With `shared` other
 * processes may have a shared lock too. Returns 0; or 1 if another process keeps the lock from this
 * one; or -1 and errno if the file system refuses locks. */
int file_lock_try(int fd, bool shared);

#endif
