/*
 * What the control plane does without a request: once a second, and when the worker ends.
 */
#ifndef RG_CONTROL_CONTROL_H
#define RG_CONTROL_CONTROL_H

struct service;

/* Runs once a second: expires sessions over their TTL, and removes tombstones and data over their
 * retention, in a task. control_sweep_all, called before the worker serves, does all of it at
 * once. */
void control_sweep(struct service *a);
void control_sweep_all(struct service *a);

/* Called when the worker drains: long polls are handed back, or end with 503 when the whole service
 * stops. */
void control_drain(struct service *a);

/* Ends what still waits: a pause, requests to siblings. No further request may arrive. */
void control_done(struct service *a);

#endif
