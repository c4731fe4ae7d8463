/*
 * The keeper: one process of each gateway with --fleet. It joins the fleet, renews the places that
 * its node owns, and writes the place table (common/fleet/place_table.h), which routers and workers
 * read. Workers are started after it has joined, because their indexes come from the node's block.
 * If it dies, its successor continues with the places in the table.
 */
#ifndef RG_KEEPER_FLEET_KEEPER_H
#define RG_KEEPER_FLEET_KEEPER_H

struct heritage;

/* Runs the keeper after the fork, until it is asked to drain. Reports readiness when the node has
 * joined and owns a place for each worker. Returns the exit status. */
int fleet_keeper_run(const struct heritage *h);

#endif
