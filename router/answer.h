/*
 * Relays the answer from the worker to the client: the checked head, then the body, at the client's
 * pace. An answer that the worker breaks off is never completed.
 */
#ifndef RG_ROUTER_ANSWER_H
#define RG_ROUTER_ANSWER_H

#include "router/conn.h"

/* Moves bytes of the answer, at most *budget, which is decreased. Returns WAIT, OVER (the answer is
 * written), CLOSE, or, with *e, REFUSE or LOST. LOST: the worker ended without an answer, and it
 * cannot have acted on the request, or the request may be served twice. */
enum verdict answer_pump(struct conn *c, size_t *budget, struct err *e);

/* Sends the client 100 Continue. Its answer does not begin by that. */
void answer_accept(struct conn *c);

#endif
