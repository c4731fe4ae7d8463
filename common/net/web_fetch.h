/*
 * Fetches a file of the web that a client names, in a thread that may wait: GET over http or https,
 * redirections followed. Each address on the way is checked against the rules: first the URL, then
 * every address of its name. The connection goes to one of the checked addresses, so a name that
 * changes meanwhile has no effect. No proxy, cookie or key is used.
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
    size_t max_bytes;         /* limit of the file's size */
    uint64_t until_us;        /* clock_us: when it must be there */
};

/* Appends the file to `out`. -1: ERR_INVALID (the rules, or the answer, say no), ERR_IO (no answer,
 * or none in time), ERR_BODY_TOO_LARGE, ERR_CANCELLED; ERR_OVERLOADED and ERR_WORKER_UNAVAILABLE,
 * which may be otherwise in a moment. The text names no host, no address and no path. */
RG_MUSTCHECK int web_fetch(const struct web_fetch *f, struct str url, struct buf *out,
                           struct err *e);

#endif
