/* Messages between supervisor and children (status.h): reports over a pipe, and orders over a
 * socket, if necessary with a descriptor. Both are structs of fixed size, written and read whole.
 */

#include "common/proc/status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
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

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int order_send(int to, const struct order *o, int fd, struct err *e)
{
    struct order copy = *o;
    struct iovec iov = {&copy, sizeof(copy)};
    union control control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *c;

        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    if (sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(copy))
        return err_sys(e, ERR_IO, "cannot send an order");
    return 0;
}

int order_receive(int from, struct order *ret, int *ret_fd)
{
    struct order o;
    struct iovec iov = {&o, sizeof(o)};
    union control control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int fd = -1;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(c), sizeof(int));
    }
    if (n != (ssize_t)sizeof(o)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *ret = o;
    *ret_fd = fd;
    return 1;
}
