/*
 * What happens in the control plane without a request: once in a while, and at the end.
 */
#ifndef RG_CONTROL_CONTROL_H
#define RG_CONTROL_CONTROL_H

struct service;

/* Runs once a second: sessions over their TTL expire; tombstones and data over their retention are
 * removed, in a task. control_sweep_all, before the worker serves, does all of it at once. */
void control_sweep(struct service *a);
void control_sweep_all(struct service *a);

/* The worker drains: long polls are handed back, or end with 503 when the whole service stops. */
void control_drain(struct service *a);

/* Ends what still waits: a pause, questions to siblings. No request comes any more. */
void control_done(struct service *a);

#endif
