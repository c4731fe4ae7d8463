/*
 * A library for LD_PRELOAD: no socket for the kernel's news of the network. Chromium breaks off its
 * requests when an interface comes or goes, and tests of fleets make interfaces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

int socket(int domain, int type, int protocol)
{
    if (domain == AF_NETLINK) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}
