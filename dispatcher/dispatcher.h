/*
 * The dispatcher process: owner of groups, queues and leases (docs/rollouts.md). One per gateway,
 * because a cap, an order and a barrier need one owner. It is an ordinary client of the session
 * API: it makes, finalizes and aborts sessions over the workers' sockets. Tokens never pass through
 * it. While it is being replaced, agents continue, and only dispatch waits.
 */
#ifndef RG_DISPATCHER_DISPATCHER_H
#define RG_DISPATCHER_DISPATCHER_H

struct heritage;

/* Runs the dispatcher after the fork, until it is asked to drain. Returns the exit status. */
int dispatcher_run(const struct heritage *h);

#endif
