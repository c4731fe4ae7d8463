/*
 * struct web_url: an http or https address from a client, read strictly. Forms that programs read
 * in more than one way are refused: user names, odd bytes, backslashes, numbers as hosts that are
 * not a plain address. Pure.
 */
#ifndef RG_NET_WEB_URL_H
#define RG_NET_WEB_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

enum { WEB_URL_MAX = 8192, WEB_HOST_MAX = 254 };

struct web_url {
    bool tls;
    bool bracketed;          /* the host is an IPv6 address */
    uint16_t port;           /* 0: none was given */
    char host[WEB_HOST_MAX]; /* in lower case, an IPv6 address without its brackets */
    struct str authority;    /* authority as written, in the text */
    struct str target;       /* path and query, in the text; may lack the slash in front */
};

/* Parses a URL. Returns NULL, or what is wrong with it. *ret borrows the text. */
const char *web_url_parse(struct str text, struct web_url *ret);

/* Parses HOST or HOST:PORT as in a URL. Returns NULL, or what is wrong. Sets host, bracketed, port,
 * authority of *u. */
const char *web_authority_parse(struct str text, struct web_url *u);

/* Appends a URL for messages: scheme, host and path, without user name, query and fragment (they
 * may contain keys). A text of more than WEB_SHOWN_MAX bytes is cut at a character's end, and "..."
 * follows. `url` need not be valid. */
enum { WEB_SHOWN_MAX = 100 };

void web_url_show(struct str url, struct buf *ret);

/* Returns the port to connect to. */
uint16_t web_url_port(const struct web_url *u);

/* Appends the URL to which a redirection from u leads, or the location itself if that is not a URL.
 */
void web_url_join(const struct web_url *u, struct str location, struct buf *ret);

#endif
