/*
 * Asking the other workers of this gateway over their unix sockets: for lists over all workers and
 * for orders that concern all.
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
struct loop;
struct service;
struct sibling_round;
struct siblings;

/* The way to the other workers; made on first use. */
struct siblings *siblings_of(struct service *a);

struct siblings *siblings_new(const struct heritage *h, struct loop *loop);
/* Questions still out are answered with status 0 first; who asked must not ask again then. */
void siblings_free(struct siblings *s);

struct sibling_question {
    const char *method;
    struct str path, body;       /* body may be empty */
    const struct exchange *from; /* whose key goes along */
};

/* Asks the worker of that index. The answer comes later, once. NULL: it has no socket. */
struct http_fetch *sibling_ask(struct siblings *s, uint32_t index, const struct sibling_question *q,
                               http_fetch_fn fn, void *ctx);

/* The same of all other workers that serve. `one` gets the body of every 2xx answer; `all` is
 * called once, when everybody has answered, with the number of those that did not say 2xx. */
struct sibling_round_fns {
    void (*one)(void *ctx, struct str body);
    void (*all)(void *ctx, size_t failed);
};

/* NULL when there is nobody to ask. */
struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      const struct sibling_round_fns *fns, void *ctx);

/* Calls none of its functions any more. NULL is accepted. */
void sibling_round_leave(struct sibling_round *r);

/* Indexes of the workers that serve, this one included, ascending; `ret` has room for
 * BOARD_WORKERS_MAX. */
size_t siblings_list(const struct heritage *h, uint32_t *ret);

#endif
