/*
 * A file of the web that somebody else names, fetched in a thread that may wait: GET over http or
 * https, redirections followed. Each address on the way is held against the rules: first the URL,
 * then every address that its name has; the connection goes to one of those that were looked at, so
 * a name that changes meanwhile leads nowhere else. No proxy, no cookie, no key goes along.
 */
#ifndef RG_NET_WEB_FETCH_H
#define RG_NET_WEB_FETCH_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;
struct tls_context;
struct web_rules;

enum { WEB_REDIRECTS_MAX = 3 };

struct web_fetch {
    const struct web_rules *rules;
    const char *ca_file;      /* NULL or "": the system's */
    struct tls_context **tls; /* the thread's own, made with ca_file when NULL is there; the
                                 caller's to free */
    size_t max_bytes;         /* of the file */
    uint64_t until_us;        /* clock_us: when it must be there */
};

/* Appends the file to `out`. -1: ERR_INVALID (the rules, or the answer, say no), ERR_IO (no answer,
 * or none in time), ERR_BODY_TOO_LARGE, ERR_CANCELLED; ERR_OVERLOADED and ERR_WORKER_UNAVAILABLE,
 * which may be otherwise in a moment. The text names no host, no address and no path. */
RG_MUSTCHECK int web_fetch(const struct web_fetch *f, struct str url, struct buf *out,
                           struct err *e);

#endif
