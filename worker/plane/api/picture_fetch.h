/*
 * struct picture_fetch: the pictures that one request names by URL, fetched in a thread that may
 * wait. Settings are copies, for they may change meanwhile.
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

/* mem_zalloc'd. The owner sets the first part. */
struct picture_fetch {
    const struct web_rules *web;
    const struct media_store *media;
    struct str session_id; /* borrowed; absent: there is none yet, so nothing is kept */
    struct image_rules rules;
    uint64_t memory_bytes;       /* limit of all bytes that are being fetched */
    atomic_size_t *sum;          /* the bytes of that */
    char *ca_file;               /* its own, or NULL */
    struct tls_context **tls;    /* context of the thread */
    uint64_t limit_us, until_us; /* the time there is, and its end on clock_us */

    bool waited;     /* most of it was over before a thread was free */
    size_t reserved; /* its bytes in `sum` */
    unsigned counts[FETCH_RESULTS];
    char host[WEB_HOST_MAX]; /* host of the last failed fetch, and the reason */
    struct err why;          /* kind 0: none */
};

/* Fetches, in the thread, what `req` still waits for into the arena, and, if there is a session,
 * into the store. Errors as of image_parts_fetch, and our own, which may be tried again. */
int picture_fetch_run(struct picture_fetch *f, struct arena *a, struct chat_request *req,
                      struct err *e);

/* Frees the fetch and its reserved bytes. The owner of the arena counts what came. */
void picture_fetch_free(struct picture_fetch *f);

#endif
