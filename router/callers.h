/*
 * struct caller: connections that are counted together, because they have the same network address
 * or last proved the same key. The hub's map owns it while a connection counts under it. Each
 * router counts only its own connections.
 */
#ifndef RG_ROUTER_CALLERS_H
#define RG_ROUTER_CALLERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/proc/ids.h"
#include "common/proc/proof.h"

struct map;
struct sockaddr_storage;

enum { CALLER_NAME_MAX = ID_TEXT_MAX + 2 };

struct caller {
    char name[CALLER_NAME_MAX];
    size_t name_len;
    size_t connections;
    uint64_t body_bytes; /* received bytes of request bodies that are not complete */
    unsigned gatherers;  /* number of connections with conn_gather */
};

/* Writes the name that an address is counted under, and returns it. IPv4 addresses count as a
 * whole. IPv6 addresses count by their first 64 bits, because one host has a whole such network.
 * All other families share a name. */
struct str caller_of_address(const struct sockaddr_storage *from, char text[CALLER_NAME_MAX]);

/* Writes the name of a caller by the scope of its key (agent, runner, executor) and the key's id,
 * and returns it. Scopes count separately, so an agent's connections do not limit the runner of the
 * same session. */
struct str caller_of_key(enum key_scope scope, struct str id, char text[CALLER_NAME_MAX]);

/* Returns the number of connections that count under a name. */
size_t callers_connections(const struct map *all, struct str name);

/* Adds a connection to the caller of that name, which is made if it is new. */
struct caller *callers_join(struct map *all, struct str name);

/* Removes a connection from its caller. Accepts NULL. */
void callers_leave(struct map *all, struct caller *c);

#endif
