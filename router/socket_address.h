/*
 * struct socket_address: an address of the settings: unix:PATH or HOST:PORT.
 */
#ifndef RG_ROUTER_SOCKET_ADDRESS_H
#define RG_ROUTER_SOCKET_ADDRESS_H

#include <sys/socket.h>

#include "common/net/resolve.h"

struct socket_address {
    struct sockaddr_storage addr;
    socklen_t len;
    char authority[RESOLVE_TEXT]; /* the address as text; "" for a unix socket */
};

/* Parses unix:PATH or HOST:PORT. Resolving HOST may block. Returns 0, or -1 with ERR_CONFIG. */
int socket_address_parse(struct socket_address *a, const char *text, struct err *e);

/* Sets the path of a Unix socket. Returns 0, or -1 with ERR_CONFIG if the path does not fit. */
int socket_address_set_path(struct socket_address *a, const char *path, struct err *e);

#endif
