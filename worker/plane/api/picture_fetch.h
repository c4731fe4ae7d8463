/*
 * struct picture_fetch: fetches the pictures that one request names by URL, in a thread that may
 * wait. Settings are copies, because they may change meanwhile.
 */
#ifndef RG_API_PICTURE_FETCH_H
#define RG_API_PICTURE_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/net/web_url.h"
#include "common/proc/metrics.h"
#include "worker/text/request/request_limits.h"

struct arena;
struct chat_request;
struct media_store;
struct tls_context;
struct web_rules;

enum { FETCH_RESULTS = METRIC_FETCH_CANCELLED + 1 };

/* Allocated by mem_zalloc. The owner sets the first members. */
struct picture_fetch {
    const struct web_rules *web;
    const struct media_store *media;
    /* borrowed; absent: the session does not exist yet, so nothing is stored */
    struct str session_id;
    struct image_rules rules;
    uint64_t memory_bytes;       /* limit of all bytes that are being fetched */
    atomic_size_t *sum;          /* counter of these bytes */
    char *ca_file;               /* certificates of the setting, or NULL */
    struct tls_context **tls;    /* TLS context of the thread */
    uint64_t limit_us, until_us; /* available time, and its end on clock_us */

    bool waited;     /* most of the time was over before a thread was free */
    size_t reserved; /* bytes of this fetch in `sum` */
    unsigned counts[FETCH_RESULTS];
    char host[WEB_HOST_MAX]; /* host and reason of the last failed fetch */
    struct err why;          /* kind 0: none failed */
};

/* Fetches, in the thread, the remaining pictures of `req` into the arena and, if there is a
 * session, into the store. Errors are those of image_parts_fetch, and our own, which may be
 * retried. */
int picture_fetch_run(struct picture_fetch *f, struct arena *a, struct chat_request *req,
                      struct err *e);

/* Frees the fetch and its reserved bytes. The owner of the arena counts the fetched bytes. */
void picture_fetch_free(struct picture_fetch *f);

#endif
