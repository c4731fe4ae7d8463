/*
 * TLS to servers, through mbedTLS 2.28 (TLS 1.2): certificates and names are checked, SNI is sent,
 * sessions are resumed. struct tls_context holds what all connections of one kind share; struct tls
 * is one connection over a non-blocking socket that the caller owns. Connections of our own server
 * (tls_server.h) are read, written and closed by the same calls.
 */
#ifndef RG_NET_TLS_H
#define RG_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct tls_context;
struct tls;
struct tls_session; /* for the next connection to the same server */

/* ca_file: PEM bundle; NULL or "": the file that SSL_CERT_FILE names, else the system's.
 * `insecure` checks nothing and logs a warning. */
int tls_context_new(const char *ca_file, bool insecure, struct tls_context **ret, struct err *e);
void tls_context_free(struct tls_context *c);

/* Accepts only servers that show the first certificate of ca_file, whatever its names and dates. */
void tls_context_pin(struct tls_context *c);

/* fd stays the caller's and must outlive the result. host: name or address to be checked against
 * the certificate. *session, when not NULL, is offered; tls_handshake renews it. */
int tls_new(struct tls_context *c, const char *host, int fd, struct tls **ret, struct err *e);
void tls_free(struct tls *t);

/* For who waits in a thread: after until_us (clock_us), or when the thread's work is cancelled,
 * nothing is read any more; what needs bytes returns 0. */
void tls_limit(struct tls *t, uint64_t until_us);

/* Whether the handshake failed by the certificate. */
bool tls_refused(const struct tls *t);

void tls_session_free(struct tls_session *s);

/* 1 done, 0 wants the socket readable or writable, -1 ERR_ENGINE_UNAVAILABLE with the reason in
 * plain words. *session (NULL at first) is used and replaced; the caller's to free. */
int tls_handshake(struct tls *t, struct tls_session **session, struct err *e);

/* Bytes moved; 0 when the socket has to become ready first; -1 failed; for reading TLS_CLOSED after
 * the peer's proper end. */
enum { TLS_CLOSED = -2 };

ssize_t tls_read(struct tls *t, void *p, size_t n);

/* Sends through t, or without one (NULL) through the socket itself. Bytes moved; 0 when the socket
 * has to become ready first; -1 failed. */
ssize_t tls_or_plain_write(struct tls *t, int fd, struct str bytes);

/* Longest plaintext of one write, in bytes. */
enum { TLS_RECORD = 16 * 1024 };

/* A write that moved nothing must be repeated with the same bytes. After this call other bytes may
 * follow: the encrypted ones still go out, and no write reports them. */
void tls_abandon(struct tls *t);

/* Sends the peer the proper end; best effort. False: the socket has to become writable first. */
bool tls_close(struct tls *t);

#endif
