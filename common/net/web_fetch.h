/*
 * Fetches a file of the web that a client names, in a thread that may wait: GET over http or https,
 * redirections followed. Each URL, including redirections, is checked against the rules, and then
 * every address of its name. The connection is made to one of the checked addresses, so that a name
 * that changes meanwhile has no effect. No proxy, cookie or key is used.
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
    const char *ca_file; /* NULL or "": the system's */
    /* the thread's own context, made with ca_file if NULL; the caller frees it */
    struct tls_context **tls;
    size_t max_bytes;  /* limit of the file's size */
    uint64_t until_us; /* clock_us by which the file must be complete */
};

/* Appends the file to `out`. Returns -1 with ERR_INVALID (the rules or the answer refuse it),
 * ERR_IO (no answer, or none in time), ERR_BODY_TOO_LARGE, ERR_CANCELLED, or with ERR_OVERLOADED or
 * ERR_WORKER_UNAVAILABLE, after which a retry may succeed. The text contains no host, no address
 * and no path. */
RG_MUSTCHECK int web_fetch(const struct web_fetch *f, struct str url, struct buf *out,
                           struct err *e);

#endif
