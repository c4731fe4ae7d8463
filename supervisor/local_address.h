/*
 * The address by which a program on this machine reaches a listening address of ours.
 */
#ifndef RG_SUPERVISOR_LOCAL_ADDRESS_H
#define RG_SUPERVISOR_LOCAL_ADDRESS_H

struct buf;
struct config;
struct gateway_client_options;

/* Appends `listen` ("HOST:PORT"). A host that means all addresses becomes loopback. */
void local_address_add(const char *listen, struct buf *out);

/* Makes o reach the gateway at --listen. The URL, NUL-terminated, is appended to `url`, which must
 * outlive o. Over TLS the gateway must show --tls-certificate, whatever names that contains. */
void local_address_use(const struct config *c, struct gateway_client_options *o, struct buf *url);

#endif
