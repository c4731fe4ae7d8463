/*
 * struct workers: the dispatcher's calls to the workers of its gateway, over their unix sockets,
 * with the gateway's own key. In a fleet sessions are made at the least loaded node. Calls for
 * sessions of other nodes go through a router of this node, which holds them while a place has no
 * owner.
 */
#ifndef RG_DISPATCHER_WORKERS_H
#define RG_DISPATCHER_WORKERS_H

#include <stdbool.h>

#include "common/net/http_fetch.h"
#include "common/proc/ids.h"

struct heritage;
struct http_fetch;
struct loop;
struct str;
struct workers;

struct workers *workers_new(const struct heritage *h, struct loop *loop);

/* Sets the key that calls carry (copied); empty: no key is needed. */
void workers_key(struct workers *w, const char *key);

/* Returns why a serving worker could not be reached by its last call; NULL: every worker could.
 * Valid until the next call. */
const char *workers_fault(struct workers *w);

/* Returns the place of that worker. Call it only after workers_fault has returned a text. */
unsigned workers_fault_place(const struct workers *w);

/* Calls the worker that could not be reached, to check whether it can be reached now. */
void workers_retry(struct workers *w);

/* Frees w. Pending calls are dropped without an answer. */
void workers_free(struct workers *w);

/* Calls the worker of the session `id`. If id is absent, calls the next worker in turn. body may be
 * empty; it is copied. */
struct http_fetch *worker_call(struct workers *w, struct str id, const char *method,
                               struct str path, struct str body, http_fetch_fn fn, void *ctx);

/* Asks for the state of a session, without waiting for its end. */
struct http_fetch *worker_ask_session(struct workers *w, const char *id, http_fetch_fn fn,
                                      void *ctx);

/* Writes an id that only means the next worker in turn, so that calls for it go to one worker, also
 * after it restarts. Empty: no worker serves now. */
void workers_choose(struct workers *w, char ret_id[ID_TEXT_MAX]);

/* Asks the next worker in turn to make a session, in a fleet the node with the least load. A claim
 * waits for its slowest session, so the call ends before the executor's timeout (CALL_MARGIN_MS in
 * runner/executor.c). A node that cannot make the session now is not asked for a second. If the
 * body `chooses` a node, a worker of this node passes it on. */
struct http_fetch *worker_make_session(struct workers *w, struct str body, bool chooses,
                                       http_fetch_fn fn, void *ctx);

/* Reports whether a node of the fleet may make sessions now, after one did not. False without a
 * fleet. */
bool workers_have_others(const struct workers *w);

/* Like worker_call with POST, for requests without a time limit: the call ends with its answer, or
 * with the worker. */
struct http_fetch *worker_call_long(struct workers *w, struct str id, struct str path,
                                    struct str body, http_fetch_fn fn, void *ctx);

/* Reports whether an answer refuses the call for good. These are not for good: the gateway's keys
 * are being changed (401, 403), the call came too slowly (408), or there is no capacity now (429).
 */
bool worker_refuses(int status);

/* Reports whether an answer says that the session is lost with a node of the fleet. */
bool worker_lost_session(int status, struct str body);

#endif
