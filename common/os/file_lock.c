#include "common/os/file_lock.h"

#include <errno.h>
#include <sys/file.h>

#include "common/base/log.h"

static bool allows_none;

void file_lock_allow_none(bool allow)
{
    allows_none = allow;
}

int file_lock(int fd, bool wait, const char *what, struct err *e)
{
    int rc;

    do
        rc = flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return 1;
    if (!allows_none)
        return err_sys(
            e, ERR_IO,
            "the file system of %s refuses locks, so nothing keeps a second gateway out: "
            "use another folder, or --unlocked-state",
            what);
    log_warn(NULL, "a file is not locked (--unlocked-state)", LOG_T("file", what));
    return 0;
}
