/* The channel between a router and a worker for lent connections (lending.h): messages over a
 * SOCK_SEQPACKET pair, descriptors by SCM_RIGHTS, and a page in a memfd. */

#include "common/net/lending.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/http1.h"

/* Space for the descriptors of one message, aligned as the kernel requires. */
union rights {
    struct cmsghdr header;
    char room[CMSG_SPACE(2 * sizeof(int))];
};

static void add_rights(struct msghdr *msg, union rights *r, const int *fds, size_t n)
{
    memset(r, 0, sizeof(*r));
    r->header.cmsg_level = SOL_SOCKET;
    r->header.cmsg_type = SCM_RIGHTS;
    r->header.cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(&r->header), fds, n * sizeof(int));
    msg->msg_control = r->room;
    msg->msg_controllen = CMSG_SPACE(n * sizeof(int));
}

/* Reads at most two descriptors; missing ones become -1. */
static void read_rights(struct msghdr *msg, int ret[2])
{
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    size_t n = 0;

    ret[0] = ret[1] = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (n > 0)
        memcpy(ret, CMSG_DATA(c), MIN_OF(n, (size_t)2) * sizeof(int));
}

static void close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Returns NULL with errno if it cannot be mapped. */
static struct lending_page *map_page(int fd)
{
    struct lending_page *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p != MAP_FAILED)
        return p;
    return NULL;
}

int lending_open(struct lending_channel *ret, struct err *e)
{
    int pair[2], room = 2 * LENDING_MESSAGE_MAX;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return err_sys(e, ERR_IO, "cannot make a channel to a worker");
    *ret = (struct lending_channel){.fd = pair[0], .fd_of_worker = pair[1]};
    for (int i = 0; i < 2; i++) /* because the system's default may be less than a message */
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    ret->page_fd = memfd_create("rollgate-lent", MFD_CLOEXEC);
    if (ret->page_fd >= 0 && ftruncate(ret->page_fd, sizeof(struct lending_page)) == 0)
        ret->page = map_page(ret->page_fd);
    if (ret->page)
        return 0;
    (void)err_sys(e, ERR_IO, "cannot make a page for lent connections");
    close_both(pair);
    if (ret->page_fd >= 0)
        close(ret->page_fd);
    return -1;
}

struct lending_page *lending_map(int page_fd, struct err *e)
{
    struct lending_page *p = NULL;
    struct stat st;

    if (fstat(page_fd, &st) == 0 && st.st_size >= (off_t)sizeof(*p))
        p = map_page(page_fd);
    if (!p)
        (void)err_sys(e, ERR_IO, "cannot map a router's page");
    return p;
}

void lending_unmap(struct lending_page *p)
{
    if (p)
        (void)munmap(p, sizeof(*p));
}

/* Sends with up to two descriptors. */
static int send_all(int to, struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_iov};
    union rights rights;
    ssize_t n;

    if (n_fds > 0)
        add_rights(&msg, &rights, fds, n_fds);
    do {
        n = sendmsg(to, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

int lending_send(int channel, const struct lending_message *m, struct str bytes, int fd)
{
    struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof(*m)},
                           {.iov_base = (char *)(uintptr_t)bytes.p, .iov_len = bytes.len}};

    CHECK(bytes.len <= LENDING_MESSAGE_MAX);
    return send_all(channel, iov, bytes.len > 0 ? 2 : 1, &fd, fd >= 0);
}

int lending_introduce(int link, const struct lending_channel *c)
{
    static const char text[] = LENDING_OPENS;
    struct iovec iov = {.iov_base = (char *)(uintptr_t)text, .iov_len = sizeof(text) - 1};
    int fds[2] = {c->fd_of_worker, c->page_fd};

    return send_all(link, &iov, 1, fds, 2);
}

/* Receives like recvmsg(2), with descriptors. */
static ssize_t receive_message(int from, struct iovec *iov, size_t n_iov, int ret_fds[2],
                               int *ret_flags)
{
    union rights rights;
    struct msghdr msg = {.msg_iov = iov,
                         .msg_iovlen = n_iov,
                         .msg_control = rights.room,
                         .msg_controllen = sizeof(rights.room)};
    ssize_t n;

    do {
        n = recvmsg(from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    ret_fds[0] = ret_fds[1] = -1;
    if (n >= 0)
        read_rights(&msg, ret_fds);
    *ret_flags = n >= 0 ? msg.msg_flags : 0;
    return n;
}

ssize_t lending_first_read(int link, void *to, size_t size, int ret_fds[2])
{
    struct iovec iov = {.iov_base = to, .iov_len = size};
    int flags;

    return receive_message(link, &iov, 1, ret_fds, &flags);
}

int lending_receive(int channel, char *room, struct lending_message *m, struct str *ret_bytes,
                    int *ret_fd)
{
    struct iovec iov[2] = {{.iov_base = m, .iov_len = sizeof(*m)},
                           {.iov_base = room, .iov_len = LENDING_MESSAGE_MAX}};
    int fds[2], flags;
    ssize_t n;

    /* An error is reported once, before the messages that the other side had sent. */
    do {
        n = receive_message(channel, iov, 2, fds, &flags);
    } while (n < 0 && errno == ECONNRESET);
    if (n < 0)
        return errno == EAGAIN ? -1 : 0;
    if (n < (ssize_t)sizeof(*m) || (flags & MSG_TRUNC) || fds[1] >= 0 || m->slot >= LENDING_SLOTS) {
        close_both(fds);
        return 0;
    }
    *ret_bytes = str_of(room, (size_t)n - sizeof(*m));
    *ret_fd = fds[0];
    return 1;
}

/* Reports whether a hop-by-hop header means the same in the worker: the length, and the wish to
 * keep the connection. */
static bool is_for_any_hop(const struct http1_header *h)
{
    if (h->known == HTTP1_CONNECTION)
        return str_eq_nocase(h->value, STR("keep-alive"));
    if (h->known == HTTP1_EXPECT)
        return false;
    return !h->drop || h->known == HTTP1_CONTENT_LENGTH || h->known == HTTP1_KEEP_ALIVE;
}

bool lending_plain(const struct http1_head *h, struct str *ret_head, size_t *ret_length_at)
{
    if (h->minor != 1 || !h->keep_alive || h->body != HTTP1_LENGTH)
        return false;
    for (size_t i = 0; i < h->n; i++)
        if (!is_for_any_hop(&h->headers[i]))
            return false;
    *ret_head = str_of(h->method.p, (size_t)(h->headers[h->n - 1].end + 2 - h->method.p));
    *ret_length_at = (size_t)(http1_known(h, HTTP1_CONTENT_LENGTH).p - h->method.p);
    return ret_head->len <= LENDING_HEAD_MAX && ret_head->p[*ret_length_at] != '0';
}

enum { LENGTH_DIGITS_MAX = 15 }; /* a petabyte: sums of such lengths do not overflow */

bool lending_matches(struct str head, size_t length_at, struct str in, size_t *ret_whole)
{
    struct str before = str_sub(head, 0, length_at), digits = str_sub(head, length_at, SIZE_MAX);
    struct str rest = str_sub(in, length_at, SIZE_MAX), after;
    size_t n = 0, shown = 0, bytes = 0;

    *ret_whole = 0;
    if (!str_starts(before, str_sub(in, 0, length_at)))
        return false;
    if (in.len <= length_at)
        return true;
    while (n < digits.len && digits.p[n] >= '0' && digits.p[n] <= '9')
        n++;
    after = str_sub(digits, n, SIZE_MAX);
    for (; shown < rest.len && rest.p[shown] >= '0' && rest.p[shown] <= '9'; shown++) {
        if (rest.p[0] == '0' || shown == LENGTH_DIGITS_MAX)
            return false;
        bytes = bytes * 10 + (size_t)(rest.p[shown] - '0');
    }
    if (shown == rest.len)
        return true;
    rest = str_sub(rest, shown, SIZE_MAX);
    if (shown == 0 || !str_starts(after, str_sub(rest, 0, after.len)))
        return false;
    if (rest.len < after.len)
        return true;
    *ret_whole = length_at + shown + after.len + bytes;
    return true;
}
