/*
 * struct workers: the dispatcher's calls to the session-workers of its gateway, over their unix
 * sockets, with the gateway's own key. Small answers only: they are held whole.
 */
#ifndef RG_DISPATCHER_WORKERS_H
#define RG_DISPATCHER_WORKERS_H

#include "common/os/loop.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"

struct worker_call;
struct workers;

/* status 0: the worker could not be reached, or broke off; e says why. body is borrowed. */
typedef void (*worker_fn)(void *ctx, int status, struct str body, const struct err *e);

struct workers *workers_new(const struct heritage *h, struct loop *loop);

/* The key that goes along; empty: none is needed. Copied. */
void workers_key(struct workers *w, const char *key);

/* Calls still out are dropped without an answer. */
void workers_free(struct workers *w);

/* Calls the worker that has the session in `id`, or, id absent, the next one in turn. The answer
 * comes later, once; never from inside. */
struct worker_call *worker_call(struct workers *w, struct str id, const char *method,
                                struct str path, struct str body, worker_fn fn, void *ctx);

/* No answer any more. NULL is fine. */
void worker_cancel(struct worker_call *c);

#endif
