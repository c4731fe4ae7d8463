/*
 * The address by which a program on this machine reaches a listening address of ours.
 */
#ifndef RG_SUPERVISOR_LOCAL_ADDRESS_H
#define RG_SUPERVISOR_LOCAL_ADDRESS_H

struct buf;

/* Appends `listen` ("HOST:PORT"). A host that stands for all addresses becomes loopback. */
void local_address_add(const char *listen, struct buf *out);

#endif
