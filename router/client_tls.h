/*
 * struct client_tls: TLS of a client's connection (--listen ADDRESS,tls). One helper thread of the
 * router runs the handshakes, because a long key, or a client's certificates, would block the loop
 * too long. Addresses share the thread by the time that their handshakes take. After the handshake,
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

/* Appends a line for each file of --listen ADDRESS,tls that a router cannot use. */
void client_tls_check(const struct config *c, struct buf *mistakes);

/* Reads certificate and key. Starts the helper thread at the first call. Open connections keep
 * their certificate. Returns 0, or -1 with *e; the previous certificate stays then. */
int client_tls_load(struct hub *h, struct err *e);

/* Ends the helper thread. All connections must be closed before. Returns false if a handshake does
 * not end: the process must leave by _exit then. */
bool client_tls_stop(struct hub *h);

/* Begins TLS on an accepted connection. Returns 0, or -1 after it has closed the connection. */
int client_tls_open(struct conn *c);

/* Ends TLS of a connection that is being closed, or that continues without TLS. Returns true if a
 * handshake job is pending; its end closes the descriptor. */
bool client_tls_free(struct conn *c);

/* Reports whether the handshake is done. */
bool client_tls_ready(const struct conn *c);

/* Continues the handshake. The end of its job calls hub->run. Returns true if the client speaks
 * plain HTTP: an error is parked for the client then. */
bool client_tls_shake(struct conn *c);

/* Closes a connection whose handshake took longer than its deadline. */
void client_tls_expire(struct conn *c);

/* Reads like recv(2). EAGAIN: mbedTLS has no buffered bytes, either. */
ssize_t client_tls_read(struct conn *c, void *to, size_t size);

/* Sends the TLS end of the connection. Returns false if the socket must become writable first. */
bool client_tls_end(struct conn *c);

#endif
