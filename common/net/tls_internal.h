/*
 * What tls.c (connections, the client's side) and tls_server.c (the server's side) share.
 */
#ifndef RG_NET_TLS_INTERNAL_H
#define RG_NET_TLS_INTERNAL_H

#include <mbedtls/ssl.h>

#include "common/net/tls.h"

struct tls_server;

struct tls {
    mbedtls_ssl_context ssl;
    struct tls_context *context; /* of a client; or NULL */
    struct tls_server *server;   /* of a server; or NULL */
    char *host;
    bool by_address; /* host is an address: checked by us, mbedTLS knows names only */
    bool offered;    /* a session was offered */
    bool refused;    /* the certificate was */
    int fd;
    uint64_t until_us;   /* nothing is read later; 0: no limit */
    size_t may_read;     /* bytes that the call under way may still read */
    bool drained;        /* the socket had no more bytes in this call, or until_us has passed */
    size_t staged_bytes; /* encrypted, not yet reported as written */
    bool closed;         /* the proper end was made; mbedTLS may still hold it */
};

/* Sets *e to "TLS: WHAT: what mbedTLS says of the code". Returns -1. */
int tls_fail(struct err *e, enum err_kind kind, const char *what, int code);

/* Connects mbedTLS to the socket t->fd. */
void tls_attach(struct tls *t);

/* Counts the connection off; the last one of replaced settings frees them. */
void tls_server_release(struct tls_server *s);

/* The protocols of ALPN. */
extern const char *const tls_protocols[];

#endif
