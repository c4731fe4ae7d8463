/*
 * struct engine_order: a change of the set of engines in progress. engines.c carries it out.
 */
#ifndef RG_CONTROL_ENGINE_ORDER_H
#define RG_CONTROL_ENGINE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/os/loop.h"
#include "common/serve/reach.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/control/order_outcome.h"

struct engine_texts;

/* What an order does with the engines given: replace the set, add to the set, or remove from the
 * set. */
enum engine_change { CHANGE_ALL, CHANGE_MORE, CHANGE_LESS };

struct engine_order {
    struct list_item item; /* in service->engine_orders */
    struct service *service;
    struct exchange *x; /* exchange of the request; NULL: the client has left */
    unsigned dialect;
    enum engine_change change;
    int lock_fd; /* lock of the set; -1: released */
    bool probe, trying;
    bool obeying; /* the set of the fleet is being read or written */
    enum reach reach;
    uint64_t base;    /* edition of the fleet's set that the order changes; 0: any */
    uint64_t edition; /* of the fleet's orders; 0: the order is for this node alone */
    struct buf keys;  /* of the request, for the others */
    /* time until which the order waits for removed engines to finish their requests */
    uint64_t until_ms;
    struct engine_set now, next;
    struct sibling_round *round;
    struct order_outcome outcome;
    engines_taken_fn taken; /* callback of an order without a request; NULL: an order by HTTP */
    void *taken_ctx;
    struct buf silent; /* engines of a source that do not answer, left out of `next` */
    struct loop_timer look;
    struct arena arena; /* memory of the names */
};

/* Makes an order of a request (NULL: of the gateway itself), which has not locked the set yet. If
 * the client leaves while engines are tried, the order is freed. */
struct engine_order *engine_order_new(struct service *a, const struct service_request *r);

/* Answer the order and free it: with an error; with what has changed; or, if it has no request,
 * with the engines that do not answer. */
void engine_order_fail(struct engine_order *o, const struct err *e);
void engine_order_answer(struct engine_order *o);
void engine_order_answer_taken(struct engine_order *o);

/* Sends the order, which this worker has applied, to the others, and answers it afterwards. */
void engine_order_notify_others(struct engine_order *o);

/* Reads the request into `next`. `now` must be loaded. Returns -1 with the field at fault. */
int engine_order_read(struct engine_order *o, struct service_request *r, struct err *e);

/* Makes `next` of these engines alone. */
int engine_order_read_texts(struct engine_order *o, const struct engine_texts *t, struct err *e);

/* Reports whether `next` has the engines and pools of `now`, in their order. */
bool engine_order_is_as_before(const struct engine_order *o);

/* Returns the name of an engine by its argument. */
const char *engine_order_name(struct engine_order *o, const char *text);

/* Returns the engine of that argument, or NULL. */
const struct engine_entry *engine_order_find(const struct engine_set *s, struct str text);

#endif
