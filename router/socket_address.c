#include "router/socket_address.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/str.h"

int socket_address_set_path(struct socket_address *a, const char *path, struct err *e)
{
    struct sockaddr_un *to = (struct sockaddr_un *)(void *)&a->addr;

    if (strlen(path) == 0 || strlen(path) >= sizeof(to->sun_path))
        return err_set(e, ERR_CONFIG, "a unix socket path must have 1 to %zu bytes: %s",
                       sizeof(to->sun_path) - 1, path);
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path, strlen(path) + 1);
    a->len = sizeof(*to);
    return 0;
}

/* Parses HOST:PORT and resolves HOST. */
static int parse_tcp(struct socket_address *a, const char *text, struct err *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    const char *colon = strrchr(text, ':');
    struct str host = str_of(text, colon ? (size_t)(colon - text) : 0);
    uint64_t port;
    char *name;
    int r;

    if (colon == NULL || host.len == 0 || str_to_u64(str_cstr(colon + 1), UINT16_MAX, &port) != 0)
        return err_set(e, ERR_CONFIG, "an upstream is unix:PATH or HOST:PORT, not %s", text);
    if (host.p[0] == '[' && host.p[host.len - 1] == ']')
        host = str_sub(host, 1, host.len - 2);
    name = mem_strndup(host.p, host.len);
    r = getaddrinfo(name, colon + 1, &hints, &found);
    free(name);
    if (r != 0)
        return err_set(e, ERR_CONFIG, "cannot find %s: %s", text, gai_strerror(r));
    memcpy(&a->addr, found->ai_addr, found->ai_addrlen);
    a->len = found->ai_addrlen;
    resolve_text(found->ai_addr, found->ai_addrlen, a->authority);
    freeaddrinfo(found);
    return 0;
}

int socket_address_parse(struct socket_address *a, const char *text, struct err *e)
{
    if (strncmp(text, "unix:", 5) == 0)
        return socket_address_set_path(a, text + 5, e);
    return parse_tcp(a, text, e);
}
