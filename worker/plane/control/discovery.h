/*
 * struct discovery: engines come and go as a file or a router lists them (--engine-source). Only
 * one worker reads the source, the first that serves. A change becomes an order like those of
 * /admin/engines. New engines must answer before they are added, and engines that are no longer
 * listed drain. The set is kept in the state folder, and the other workers follow. While there is a
 * source, /admin/engines changes nothing.
 */
#ifndef RG_CONTROL_DISCOVERY_H
#define RG_CONTROL_DISCOVERY_H

struct service;

/* Runs once a second. Does nothing without the setting. */
void discovery_look(struct service *a);

/* Ends the search when the worker ends. */
void discovery_done(struct service *a);

#endif
