/*
 * Requests to the other workers of this gateway over their unix sockets, and to the other nodes of
 * the fleet at their addresses: for lists over all workers, and for orders that concern all. Each
 * receiver's query says how far it goes: "local=1" asks one worker, "here=1" all of one node.
 */
#ifndef RG_CONTROL_SIBLING_H
#define RG_CONTROL_SIBLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/net/http_fetch.h"
#include "common/serve/reach.h"

struct buf;
struct exchange;
struct fleet_node;
struct heritage;
struct http_fetch;
struct json_out;
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
    const struct exchange *from; /* exchange whose keys are sent along; NULL: `keys` are */
    struct str keys;             /* of siblings_write_keys */
    uint64_t node_timeout_ms;    /* longest wait for a node; 0: an hour */
    /* sibling_ask_all: lost nodes, and indexes without a worker, do not count as missing */
    bool living;
    uint64_t edition; /* with `living`: a node that joins meanwhile and obeys it has answered */
};

/* Appends the keys of the exchange, for a question that may be sent when it is over. */
void siblings_write_keys(const struct exchange *x, struct buf *out);

/* Sends a request to the worker of that index. The callback is called once, later. Returns NULL if
 * the worker has no socket. */
struct http_fetch *sibling_ask(struct siblings *s, uint32_t index, const struct sibling_question *q,
                               http_fetch_fn fn, void *ctx);

/* Like sibling_ask, but sends the request to a worker of the node with that slot. A node that is
 * lost, or gets lost meanwhile, does not answer. Never returns NULL. */
struct http_fetch *sibling_ask_node(struct siblings *s, uint32_t slot,
                                    const struct sibling_question *q, http_fetch_fn fn, void *ctx);

/* Receivers that did not answer 2xx. */
struct siblings_missing {
    size_t workers, nodes;
    size_t indexes;    /* indexes without a worker, or that moved to another node meanwhile */
    struct str names;  /* of nodes and indexes, separated by commas; borrowed */
    struct str obeyed; /* the nodes that did answer, as JSON members; borrowed */
    size_t n_obeyed;   /* their number */
};

/* Writes the member "nodes" of an order's answer: this node, the `others` of a round that obeyed,
 * and the nodes that are lost. */
void siblings_put_obeyed(const struct heritage *h, struct str others, struct json_out *out);

/* Callbacks of a request to every other receiver. `one` gets the body of each 2xx answer. `all` is
 * called once, after all answers, with those that failed. */
struct sibling_round_fns {
    void (*one)(void *ctx, struct str body);
    void (*all)(void *ctx, const struct siblings_missing *missing);
};

/* Sends the request to all others within reach: adds to its path how far each of them goes. Returns
 * NULL if there are no others. */
struct sibling_round *sibling_ask_all(struct siblings *s, const struct sibling_question *q,
                                      enum reach reach, const struct sibling_round_fns *fns,
                                      void *ctx);

/* Makes the round call none of its callbacks any more. Accepts NULL. */
void sibling_round_leave(struct sibling_round *r);

#endif
