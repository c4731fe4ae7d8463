#include "common/os/file_lock.h"

#include <errno.h>
#include <sys/file.h>

#include "common/base/log.h"

static bool allows_none;

void file_lock_allow_none(bool allow)
{
    allows_none = allow;
}

/* Applies the operation of flock. Returns 0, 1 or -1 like file_lock_try. */
static int apply_lock(int fd, int operation)
{
    int rc;

    do
        rc = flock(fd, operation);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    return errno == EWOULDBLOCK ? 1 : -1;
}

int file_lock_try(int fd, bool shared)
{
    return apply_lock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB);
}

int file_lock(int fd, bool wait, const char *what, struct err *e)
{
    int rc = apply_lock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));

    if (rc >= 0)
        return rc;
    if (!allows_none)
        return err_sys(
            e, ERR_IO,
            "the file system of %s refuses locks, so nothing keeps a second gateway out: "
            "use another folder, or --unlocked-state",
            what);
    log_warn(NULL, "a file is not locked (--unlocked-state)", LOG_T("file", what));
    return 0;
}
