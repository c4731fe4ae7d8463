/*
 * struct client_tls: TLS of a client's connection (--listen ADDRESS,tls). One helper thread of the
 * router does the handshakes, because a long key, or a client's certificates, would hold the loop
 * too long. Addresses share it by the time that their handshakes take. After the handshake
 * client_tls_read and the flow to the client (flow.h) replace recv and send. Such a connection is
 * never lent or spliced, because only this process has its keys.
 */
#ifndef RG_ROUTER_CLIENT_TLS_H
#define RG_ROUTER_CLIENT_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;
struct config;
struct conn;
struct err;
struct hub;

/* Appends a line for each file of --listen ADDRESS,tls that a router could not use. */
void client_tls_check(const struct config *c, struct buf *mistakes);

/* Reads certificate and key, and starts the helper thread the first time. Connections keep the
 * certificate that they began with. Returns 0, or -1 with *e: the one that was read before stays.
 */
int client_tls_load(struct hub *h, struct err *e);

/* Ends the helper thread. All connections must be closed before. False: a handshake does not end,
 * and the process must leave by _exit. */
bool client_tls_stop(struct hub *h);

/* Begins TLS on an accepted connection. Returns 0, or -1 after closing it. */
int client_tls_open(struct conn *c);

/* Ends TLS of a connection that is being closed, or goes on without. True: a handshake is pending,
 * and its end closes the descriptor. */
bool client_tls_free(struct conn *c);

/* Whether the handshake is over. */
bool client_tls_ready(const struct conn *c);

/* Goes on with the handshake, whose end calls hub->run. Returns whether there may be more to do
 * now: the client speaks plain HTTP, and an error is parked for it. */
bool client_tls_shake(struct conn *c);

/* Closes a connection whose handshake takes too long. */
void client_tls_expire(struct conn *c);

/* Reads like recv(2). EAGAIN: mbedTLS has no bytes either. */
ssize_t client_tls_read(struct conn *c, void *to, size_t size);

/* Sends the proper end. False: the socket has to become writable first. */
bool client_tls_end(struct conn *c);

#endif
