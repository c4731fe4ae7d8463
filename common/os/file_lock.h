/*
 * Locks of files and folders (flock), which keep a second process out. A file system that
 * refuses them is an error, unless the settings allow it (--unlocked-state).
 */
#ifndef RG_OS_FILE_LOCK_H
#define RG_OS_FILE_LOCK_H

#include <stdbool.h>

#include "common/base/err.h"

/* Sets whether this process and its children continue without a lock that the file system refuses.
 */
void file_lock_allow_none(bool allow);

/* Locks the open file until its descriptor is closed. Returns 0; or 1 if a different process has
 * the lock (never with `wait`); or -1 and ERR_IO if the file system refuses locks. `what` names the
 * file in the error. */
int file_lock(int fd, bool wait, const char *what, struct err *e);

/* Like file_lock, but never waits and ignores --unlocked-state. With `shared` other processes may
 * have a shared lock too. Returns 0; or 1 if a different process's lock conflicts; or -1 and errno
 * if the file system refuses locks. */
int file_lock_try(int fd, bool shared);

#endif
