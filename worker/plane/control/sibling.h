/*
 * Requests to the other workers of this gateway over their unix sockets: for lists over all
 * workers, and for orders that concern all.
 */
#ifndef RG_CONTROL_SIBLING_H
#define RG_CONTROL_SIBLING_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/net/http_fetch.h"

struct exchange;
struct heritage;
struct http_fetch;
struct service;
struct sibling_round;
struct siblings;

/* Returns the clients of the other workers, which are made on first use. */
struct siblings *siblings_of(struct service *a);

/* Frees s. Calls the callbacks of pending requests with status 0; they must not send new ones. */
void siblings_free(struct siblings *s);

struct sibling_question {
    const char *method;
    struct str path, body;       /* body may be empty */
    const struct exchange *from; /* exchange whose key is sent along */
};

/* Sends a request to the worker of that index. The callback is called once, later. Returns NULL if
 * the worker has no socket. */
struct http_fetch *sibling_ask(struct siblings *s, uint32_t index, const struct sibling_question *q,
                               http_fetch_fn fn, void *ctx);

/* Callbacks of a request to every other serving worker. `one` gets the body of each 2xx answer.
 * `all` is called once, after all answers, with the number of workers that failed. */
struct sibling_round_fns {
    void (*one)(void *ctx, struct str body);
    void (*all)(void *ctx, size_t failed);
};

/* Sends the request to all siblings. Returns NULL if there is no other worker. */
struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      const struct sibling_round_fns *fns, void *ctx);

/* Makes the round call none of its callbacks any more. Accepts NULL. */
void sibling_round_leave(struct sibling_round *r);

/* Writes the indexes of the workers that serve, including this one, ascending, and returns their
 * number. `ret` must have space for BOARD_WORKERS_MAX. */
size_t siblings_list(const struct heritage *h, uint32_t *ret);

#endif
