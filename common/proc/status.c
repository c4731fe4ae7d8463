#include "common/proc/status.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

_Static_assert(sizeof(struct status) <= PIPE_BUF, "records must be written whole");

int status_send(int fd, const struct status *s, struct err *e)
{
    ssize_t n;

    do {
        n = write(fd, s, sizeof(*s));
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(*s))
        return err_sys(e, ERR_IO, "cannot report to the supervisor");
    return 0;
}

int status_receive(int fd, struct status *ret)
{
    struct status s;
    ssize_t n;

    do {
        n = read(fd, &s, sizeof(s));
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n != (ssize_t)sizeof(s))
        return -1;
    s.text[sizeof(s.text) - 1] = 0;
    *ret = s;
    return 1;
}
