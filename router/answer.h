/*
 * The answer's way down: the worker's head, checked and sent on, then its body, with the client's
 * pace. What the worker breaks off is never completed.
 */
#ifndef RG_ROUTER_ANSWER_H
#define RG_ROUTER_ANSWER_H

#include "router/conn.h"

/* Moves what can be moved within the budget (bytes, counted down). Returns WAIT, OVER (all of it is
 * written), CLOSE, or, with *e, REFUSE or LOST: the worker ended without an answer. With LOST it
 * cannot have acted on the request, or the request may be served twice. */
enum verdict answer_pump(struct conn *c, size_t *budget, struct err *e);

#endif
