/*
 * struct socket_address: an address that a setting names: unix:PATH or HOST:PORT.
 */
#ifndef RG_ROUTER_SOCKET_ADDRESS_H
#define RG_ROUTER_SOCKET_ADDRESS_H

#include <sys/socket.h>

#include "common/net/resolve.h"

struct err;

struct socket_address {
    struct sockaddr_storage addr;
    socklen_t len;
    char authority[RESOLVE_TEXT]; /* the address as text; "" for a unix socket */
};

/* Parses unix:PATH or HOST:PORT, and resolves HOST, which may block. Returns -1 and ERR_CONFIG. */
int socket_address_parse(struct socket_address *a, const char *text, struct err *e);

/* Sets the path of a unix socket. Returns -1 and ERR_CONFIG if it does not fit. */
int socket_address_set_path(struct socket_address *a, const char *path, struct err *e);

#endif
