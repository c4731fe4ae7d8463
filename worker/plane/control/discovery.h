/*
 * struct discovery: adds and removes engines as a file or a router lists them (--engine-source).
 * Only the first worker that serves reads the source. A change becomes an order like those of
 * /admin/engines: new engines must answer before they are added, and engines that are no longer
 * listed drain. The set is kept in the state folder, and the other workers follow it. While there
 * is a source, /admin/engines changes nothing.
 */
#ifndef RG_CONTROL_DISCOVERY_H
#define RG_CONTROL_DISCOVERY_H

struct service;

/* Looks for changes of the source. Runs once a second. Does nothing without --engine-source. */
void discovery_look(struct service *a);

/* Ends the discovery when the worker ends. */
void discovery_done(struct service *a);

#endif
