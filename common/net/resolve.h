/*
 * struct resolve: a name's addresses, asked for again without stopping the loop. The first answer
 * is asked for at start-up and may block; later ones come from a thread of their own. Addresses
 * are those of the last answer that had any.
 */
#ifndef RG_NET_RESOLVE_H
#define RG_NET_RESOLVE_H

#include <netdb.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/base/attrs.h"
#include "common/os/loop.h"

enum { RESOLVE_MAX = 8 };

/* getaddrinfo, and its result. localhost, and names below it, are the loopback addresses, whatever
 * /etc/hosts (or its absence) and the name servers say: RFC 6761, 6.3. */
int resolve_names(const char *host, const char *service, const struct addrinfo *hints,
                  struct addrinfo **ret);

/* The addresses of a host, for a thread that may wait; a name is asked for in a thread of its own,
 * as the C library's resolver keeps no time, and as it is: the domains that resolv.conf would put
 * behind it are left out. 0: *ret is the caller's (freeaddrinfo), NULL for a host that does not
 * resolve. -1: not by `until_us` (clock_us), or the caller was cancelled. RESOLVE_BUSY: so many
 * names are being asked for (by callers that gave up, too) that this one is not, or there is no
 * thread or descriptor for it. */
enum { RESOLVE_BUSY = -2, RESOLVE_WAITS_MAX = 16 };

RG_MUSTCHECK int resolve_wait(const char *host, uint16_t port, uint64_t until_us,
                              struct addrinfo **ret);

/* "127.0.0.1:80" or "[::1]:80", for messages; "?" when it is none. */
enum { RESOLVE_TEXT = 72 };

void resolve_text(const struct sockaddr *a, socklen_t len, char ret[RESOLVE_TEXT]);

struct resolve_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct resolve {
    struct loop *loop;
    char *host;
    uint16_t port;
    struct resolve_address at[RESOLVE_MAX];
    size_t n;
    struct resolve_job *job; /* a question under way, or NULL */
    struct loop_io io;
};

/* Asks once, blocking; a name that does not resolve yet is no error (n stays 0). */
void resolve_init(struct resolve *r, struct loop *loop, const char *host, uint16_t port);
void resolve_done(struct resolve *r);

/* Asks again in the background, unless that is under way or host is an address. */
void resolve_again(struct resolve *r);

#endif
