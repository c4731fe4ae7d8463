/*
 * Decides by tables of ranges (public_address.h). Addresses of both families are compared as 16
 * bytes, and a table is read from its top: the first range that contains the address decides. An
 * address in no range is not public, so that a range missing from the tables is refused.
 */
#include "common/net/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "common/base/attrs.h"

enum { V4_BITS = 96 /* bits before an IPv4 address */ };

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
static const uint8_t nat64[12] = {0, 0x64, 0xff, 0x9b};

/* Returns false if the address is no IP address. */
static bool bytes_of(const struct sockaddr *a, uint8_t ret[16])
{
    if (a->sa_family == AF_INET) {
        memcpy(ret, mapped, sizeof(mapped));
        memcpy(ret + sizeof(mapped), &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
        return true;
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(ret, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    return true;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* --- ranges --- */

static int parse_address(const char *text, struct address_net *ret)
{
    ret->bits = 128;
    memcpy(ret->bytes, mapped, sizeof(mapped));
    if (inet_pton(AF_INET, text, ret->bytes + sizeof(mapped)) == 1)
        return 0;
    return inet_pton(AF_INET6, text, ret->bytes) == 1 ? 0 : -1;
}

/* Reports whether no bit after the range's prefix is set. */
static bool is_bare(const struct address_net *net)
{
    static const uint8_t zero[16];
    uint8_t tail[16];

    memcpy(tail, net->bytes, sizeof(tail));
    memset(tail, 0, net->bits / 8);
    if (net->bits % 8)
        tail[net->bits / 8] &= (uint8_t)(0xff >> (net->bits % 8));
    return memcmp(tail, zero, sizeof(tail)) == 0;
}

int address_net_parse(struct str text, struct address_net *ret)
{
    size_t slash = str_find(text, STR("/"), 0);
    struct str address = str_sub(text, 0, slash == SIZE_MAX ? text.len : slash);
    char copy[INET6_ADDRSTRLEN];
    uint64_t bits;
    bool v4 = str_find(address, STR(":"), 0) == SIZE_MAX;

    if (address.len == 0 || address.len >= sizeof(copy))
        return -1;
    memcpy(copy, address.p, address.len);
    copy[address.len] = 0;
    if (parse_address(copy, ret) != 0)
        return -1;
    if (slash == SIZE_MAX)
        return 0;
    if (str_to_u64(str_sub(text, slash + 1, text.len), v4 ? 32 : 128, &bits) != 0)
        return -1;
    ret->bits = (unsigned)bits + (v4 ? V4_BITS : 0);
    return is_bare(ret) ? 0 : -1;
}

bool address_net_has(const struct address_net *net, const struct sockaddr *a)
{
    uint8_t bytes[16];

    return bytes_of(a, bytes) && same_bits(bytes, net->bytes, net->bits);
}

/* --- what is public --- */

struct range4 {
    uint8_t bytes[4];
    unsigned bits;
    bool is_public;
};

static const struct range4 ranges4[] = {
    {{0}, 8, false},                 /* this network; 0.0.0.0 is this machine */
    {{10}, 8, false},                /* private */
    {{100, 64}, 10, false},          /* shared by carriers (CGNAT) */
    {{127}, 8, false},               /* loopback */
    {{168, 63, 129, 16}, 32, false}, /* Azure's own services */
    {{169, 254}, 16, false},         /* link-local: metadata of clouds */
    {{172, 16}, 12, false},          /* private */
    {{192, 0, 0}, 24, false},        /* protocols */
    {{192, 0, 2}, 24, false},        /* documentation */
    {{192, 88, 99}, 24, false},      /* 6to4 relays */
    {{192, 168}, 16, false},         /* private */
    {{198, 18}, 15, false},          /* benchmarks */
    {{198, 51, 100}, 24, false},     /* documentation */
    {{203, 0, 113}, 24, false},      /* documentation */
    {{224}, 3, false},               /* multicast, reserved, broadcast */
    {{0}, 0, true},
};

struct range6 {
    uint8_t bytes[6];
    unsigned bits;
    bool is_public;
};

static const struct range6 ranges6[] = {
    {{0x20, 0x01, 0x00}, 23, false},       /* protocols; Teredo */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, false}, /* documentation */
    {{0x20, 0x02}, 16, false},             /* 6to4 */
    {{0x3f, 0xff, 0x00}, 20, false},       /* documentation */
    {{0x20}, 3, true},                     /* assigned addresses */
};

static bool is_public4(const uint8_t bytes[4])
{
    for (size_t i = 0; i < ARRAY_LEN(ranges4); i++)
        if (same_bits(bytes, ranges4[i].bytes, ranges4[i].bits))
            return ranges4[i].is_public;
    return false;
}

static bool is_public6(const uint8_t bytes[16])
{
    for (size_t i = 0; i < ARRAY_LEN(ranges6); i++)
        if (same_bits(bytes, ranges6[i].bytes, ranges6[i].bits))
            return ranges6[i].is_public;
    return false;
}

bool address_is_public(const struct sockaddr *a)
{
    uint8_t bytes[16];

    if (!bytes_of(a, bytes))
        return false;
    if (memcmp(bytes, mapped, sizeof(mapped)) == 0 || memcmp(bytes, nat64, sizeof(nat64)) == 0)
        return is_public4(bytes + sizeof(mapped));
    return is_public6(bytes);
}
