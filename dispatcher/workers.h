/*
 * struct workers: the dispatcher's calls to the session-workers of its gateway, over their unix
 * sockets, with the gateway's own key.
 */
#ifndef RG_DISPATCHER_WORKERS_H
#define RG_DISPATCHER_WORKERS_H

#include <stdbool.h>

#include "common/net/http_fetch.h"

struct heritage;
struct http_fetch;
struct loop;
struct str;
struct workers;

struct workers *workers_new(const struct heritage *h, struct loop *loop);

/* The key that goes along; empty: none is needed. Copied. */
void workers_key(struct workers *w, const char *key);

/* Why a worker that serves cannot be reached; NULL: each could be, when it was last called. Valid
 * until the next call. */
const char *workers_fault(struct workers *w);

/* The place of that worker; only after workers_fault has returned a text. */
unsigned workers_fault_place(const struct workers *w);

/* Calls the worker that cannot be reached, to see whether it can be by now. */
void workers_retry(struct workers *w);

/* Calls still out are dropped without an answer. */
void workers_free(struct workers *w);

/* Calls the worker that has the session in `id`, or, id absent, the next one in turn. body may be
 * empty; it is copied. */
struct http_fetch *worker_call(struct workers *w, struct str id, const char *method,
                               struct str path, struct str body, http_fetch_fn fn, void *ctx);

/* Asks the next worker in turn to make a session. A claim waits for its slowest session, so the
 * call ends before the executor's patience does (CALL_MARGIN_MS in runner/executor.c). */
struct http_fetch *worker_make_session(struct workers *w, struct str body, http_fetch_fn fn,
                                       void *ctx);

/* Like worker_call with POST, for requests without a time limit: the call ends with its answer, or
 * with the worker. */
struct http_fetch *worker_call_long(struct workers *w, struct str id, struct str path,
                                    struct str body, http_fetch_fn fn, void *ctx);

/* Reports whether an answer refuses the call for good. Not if it refuses for another reason: the
 * gateway's keys are being changed (401, 403), the call came too slowly (408), or there is no
 * capacity now (429). */
bool worker_refuses(int status);

#endif
