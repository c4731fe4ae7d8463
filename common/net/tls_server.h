/*
 * TLS of a server, through mbedTLS 2.28 (TLS 1.2, ALPN http/1.1): ECDHE with AES-GCM or ChaCha20,
 * no renegotiation, no resumption. A handshake with an RSA key of 4096 bits takes 25 ms, and the
 * certificates of a client may take longer: call tls_server_shake in a helper thread, one at a time
 * (mbedTLS changes the key's tables). Established connections are used by tls_read,
 * tls_or_plain_write and tls_close (tls.h).
 */
#ifndef RG_NET_TLS_SERVER_H
#define RG_NET_TLS_SERVER_H

#include "common/net/tls.h"

struct tls_server;

struct tls_server_options {
    const char *certificate_file; /* PEM, with the chain */
    const char *key_file;         /* PEM: ECDSA (P-256, P-384, P-521) or RSA */
    const char *client_ca_file;   /* PEM; NULL: clients show no certificate */
};

/* Reads the files. Returns -1 with ERR_CONFIG that names the setting (--tls-...), the file and what
 * is wrong. */
int tls_server_new(const struct tls_server_options *o, struct tls_server **ret, struct err *e);

/* Releases s. Its connections keep it until they end. Accepts NULL. */
void tls_server_free(struct tls_server *s);

/* Begins TLS on a non-blocking socket. The caller keeps fd, and closes it after tls_free. */
int tls_server_accept(struct tls_server *s, int fd, struct tls **ret, struct err *e);

enum tls_shake { TLS_SHAKE_FAILED = -1, TLS_SHAKE_READS, TLS_SHAKE_WRITES, TLS_SHAKE_DONE };

/* Continues the handshake. READS, WRITES: the socket must become readable or writable first.
 * FAILED: *e has the reason, and the peer was sent an alert. */
enum tls_shake tls_server_shake(struct tls *t, struct err *e);

/* Whether the server's signature is made, which is most of a handshake's work. Not while
 * tls_server_shake runs in a different thread. */
bool tls_server_has_signed(const struct tls *t);

#endif
