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

/* Makes a context. ca_file is a PEM bundle; NULL or "": the file that SSL_CERT_FILE names, else the
 * system's. `insecure` checks nothing and logs a warning. */
int tls_context_new(const char *ca_file, bool insecure, struct tls_context **ret, struct err *e);
void tls_context_free(struct tls_context *c);

/* Accepts only servers that show the first certificate of ca_file, whatever its names and dates. */
void tls_context_pin(struct tls_context *c);

/* Makes a connection. fd stays the caller's and must outlive the result. host is the name or
 * address that the certificate is checked against. *session, if not NULL, is offered for
 * resumption; tls_handshake renews it. */
int tls_new(struct tls_context *c, const char *host, int fd, struct tls **ret, struct err *e);
void tls_free(struct tls *t);

/* For callers that wait in a thread: after until_us (clock_us), or when the thread's work is
 * cancelled, nothing is read any more, and calls that need bytes return 0. */
void tls_limit(struct tls *t, uint64_t until_us);

/* Reports whether the handshake failed because of the certificate. */
bool tls_refused(const struct tls *t);

void tls_session_free(struct tls_session *s);

/* Continues the handshake. Returns 1 when done, 0 if the socket must become readable or writable,
 * -1 with ERR_ENGINE_UNAVAILABLE and the reason in plain words. *session (NULL at first) is used
 * and replaced; the caller frees it. */
int tls_handshake(struct tls *t, struct tls_session **session, struct err *e);

/* Read and write. Return the number of bytes, 0 if the socket must become ready first, -1 if
 * failed. A read returns TLS_CLOSED after the peer's proper end. */
enum { TLS_CLOSED = -2 };

ssize_t tls_read(struct tls *t, void *p, size_t n);

/* Sends through t or, if t is NULL, through the socket itself. more: the caller writes more at
 * once, so the kernel may wait for it. Returns the number of bytes, 0 if the socket must become
 * ready first, -1 if failed. */
ssize_t tls_or_plain_write(struct tls *t, int fd, struct str bytes, bool more);

/* Longest plaintext of one write, in bytes. */
enum { TLS_RECORD = 16 * 1024 };

/* Allows different bytes after a write that returned 0, which otherwise must be repeated with the
 * same bytes. The bytes that were encrypted are still sent, but no write reports them. */
void tls_abandon(struct tls *t);

/* Tries to send the peer a proper end. Returns false if the socket must become writable first. */
bool tls_close(struct tls *t);

#endif
