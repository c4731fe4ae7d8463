/*
 * struct url: the address of a server: http://host[:port][/prefix], https://..., unix:/path. Pure;
 * the strings borrow from the text.
 */
#ifndef RG_NET_URL_H
#define RG_NET_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct url {
    bool tls;
    bool local;           /* unix: host is the socket's path */
    struct str host;      /* without the brackets of an IPv6 address */
    struct str authority; /* for the Host header: host[:port] as written */
    uint16_t port;        /* 0 for unix */
    struct str prefix;    /* "/v1" without a slash at its end, or empty */
};

/* Parses a URL. Returns -1 with ERR_CONFIG that names what is wrong: other schemes, user names,
 * queries, bad ports or bytes. */
int url_parse(struct str text, struct url *ret, struct err *e);

/* Parses HOST, HOST:PORT, [V6] or [V6]:PORT. *ret_port does not change without a port. Returns
 * NULL, or what is wrong: a sentence without the text, which may hold a password. */
const char *url_read_host(struct str text, struct str *ret_host, uint16_t *ret_port);

#endif
