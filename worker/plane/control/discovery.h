/*
 * struct discovery: engines come and go as a file or a router tells (--engine-source). Of the
 * workers one looks, the first that serves; what it finds becomes an order like those of
 * /admin/engines: new engines have to answer before they are taken, those that are told no more
 * drain, the set is kept in the state folder, and the other workers follow. While there is a
 * source, /admin/engines changes nothing.
 */
#ifndef RG_CONTROL_DISCOVERY_H
#define RG_CONTROL_DISCOVERY_H

struct service;

/* Once a second. Nothing without the setting. */
void discovery_look(struct service *a);

/* The worker ends. */
void discovery_done(struct service *a);

#endif
