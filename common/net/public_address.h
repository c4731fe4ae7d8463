/*
 * Decides which addresses are of the public internet, for fetches that must not reach into our own
 * network at a client's wish. Also struct address_net, a range of addresses. Pure.
 *
 * Public addresses are those that are not in IANA's registries of special-purpose addresses. An
 * IPv6 address that contains an IPv4 one (mapped, NAT64) is judged by that one. If it may contain
 * one that we cannot see (6to4, Teredo, local NAT64), it is not public. Nor are clouds' own
 * services in public ranges.
 */
#ifndef RG_NET_PUBLIC_ADDRESS_H
#define RG_NET_PUBLIC_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/base/str.h"

/* IPv4 as ::ffff:a.b.c.d. */
struct address_net {
    uint8_t bytes[16];
    unsigned bits; /* number of leading bits that all addresses of the range share */
};

/* Parses ADDRESS or ADDRESS/BITS in plain spelling; bits after BITS must be 0. Returns -1 if the
 * text is neither. */
int address_net_parse(struct str text, struct address_net *ret);

/* Reports whether the range contains the address. Returns false for families other than IPv4 and
 * IPv6. */
bool address_net_has(const struct address_net *net, const struct sockaddr *a);

bool address_is_public(const struct sockaddr *a);

#endif
