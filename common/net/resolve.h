/*
 * struct resolve: the addresses of a name, which is resolved again without stopping the loop. The
 * first look-up is done at start-up and may block; later ones run in a thread of their own. The
 * addresses are those of the last answer that had any.
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

/* Like getaddrinfo, with its result, but localhost and names below it are the loopback addresses,
 * whatever /etc/hosts (or its absence) and the name servers say: RFC 6761, 6.3. */
int resolve_names(const char *host, const char *service, const struct addrinfo *hints,
                  struct addrinfo **ret);

/* Resolves a host, for a thread that may wait. Each name is resolved in a further thread, because
 * the C library's resolver has no time limit, and exactly as given: the search domains of
 * resolv.conf are not appended. Returns 0 with *ret the caller's (freeaddrinfo), or NULL for a host
 * that does not resolve. Returns -1 if there is no answer by `until_us` (clock_us), or the caller
 * was cancelled. Returns RESOLVE_BUSY if too many names are being resolved (also for callers that
 * gave up), or there is no thread or descriptor for this one. */
enum { RESOLVE_BUSY = -2, RESOLVE_WAITS_MAX = 16 };

RG_MUSTCHECK int resolve_wait(const char *host, uint16_t port, uint64_t until_us,
                              struct addrinfo **ret);

/* Writes "127.0.0.1:80" or "[::1]:80", for messages; "?" if it is no IP address. */
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
    struct resolve_job *job; /* a look-up in progress, or NULL */
    struct loop_io io;
};

/* Resolves once, blocking. A name that does not resolve yet is no error (n stays 0). */
void resolve_init(struct resolve *r, struct loop *loop, const char *host, uint16_t port);

/* Like resolve_init, but asks for a name in the background: its addresses come later. */
void resolve_begin(struct resolve *r, struct loop *loop, const char *host, uint16_t port);
void resolve_done(struct resolve *r);

/* Resolves again in the background, unless a look-up is in progress or host is an address. */
void resolve_again(struct resolve *r);

#endif
