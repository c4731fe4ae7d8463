/*
 * The trial of `rollgate fleet check`: calls every function of a store (fleet_store.h) under a name
 * of its own, and compares each answer with the rule.
 */
#ifndef RG_SUPERVISOR_STORE_TRIAL_H
#define RG_SUPERVISOR_STORE_TRIAL_H

struct doctor;
struct loop;
struct store;

/* Adds a finding for each rule, and one with the time of an append. `store` must be empty; the
 * entries of the trial remain in it. Stops at the first error. */
void store_trial_run(struct doctor *d, struct loop *loop, struct store *store);

#endif
