/*
 * struct http_fetch: one HTTP call whose answer is small enough to be held whole: JSON between
 * processes of the gateway, or to a service. The answer callback is called once, later, never from
 * inside the function that began the call. An owner that no longer needs the answer cancels the
 * fetch.
 */
#ifndef RG_NET_HTTP_FETCH_H
#define RG_NET_HTTP_FETCH_H

#include "common/base/list.h"

struct err;
struct http_client;
struct http_request;
struct loop;
struct str;

enum { HTTP_FETCH_MAX_BYTES = 64 << 20 }; /* largest body of an answer */

struct http_fetch;

/* Gets the answer. status 0: there is no answer, or it is longer than HTTP_FETCH_MAX_BYTES, with
 * the reason in *e. body is borrowed. The fetch is in no list any more when this is called, and is
 * freed when this returns. */
typedef void (*http_fetch_fn)(void *ctx, int status, struct str body, const struct err *e);

/* Begins a call. The fetch is in the list `among` (or NULL: none) until it is over. r is as in
 * http_client_start: its body is taken over. */
struct http_fetch *http_fetch(struct http_client *c, const struct http_request *r,
                              struct list_head *among, http_fetch_fn fn, void *ctx);

/* Makes a fetch that cannot begin: the loop calls fn with `why` and status 0. */
struct http_fetch *http_fetch_refused(struct loop *l, const struct err *why,
                                      struct list_head *among, http_fetch_fn fn, void *ctx);

/* Ends the fetch without calling its callback. Accepts NULL. */
void http_fetch_cancel(struct http_fetch *f);

/* Ends all fetches of the list. Each callback gets `why` with status 0; with NULL none is called. A
 * callback must not begin a fetch in the list. */
void http_fetches_end(struct list_head *among, const struct err *why);

#endif
