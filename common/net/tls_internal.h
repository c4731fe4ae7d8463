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
    struct tls_context *context; /* context of a client's connection; or NULL */
    struct tls_server *server;   /* settings of a server's connection; or NULL */
    char *host;
    bool by_address; /* host is an address: checked by tls.c, because mbedTLS knows only names */
    bool offered;    /* a session was offered for resumption */
    bool refused;    /* the certificate was refused */
    int fd;
    uint64_t until_us;   /* time after which nothing is read; 0: no limit */
    size_t may_read;     /* bytes that the current call may still read */
    bool drained;        /* the socket had no more bytes in this call, or until_us has passed */
    size_t staged_bytes; /* bytes that were encrypted, but not yet reported as written */
    bool closed;         /* the proper end was made; mbedTLS may still hold it */
};

/* Sets *e to "TLS: WHAT: what mbedTLS says of the code". Returns -1. */
int tls_fail(struct err *e, enum err_kind kind, const char *what, int code);

/* Connects mbedTLS to the socket t->fd. */
void tls_attach(struct tls *t);

/* Ends a connection's use of the settings. The last user of replaced settings frees them. */
void tls_server_release(struct tls_server *s);

/* The protocols of ALPN. */
extern const char *const tls_protocols[];

#endif
