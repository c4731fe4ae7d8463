/*
 * struct caller: connections that are counted together: those of one network address, or those that
 * last proved one key. It lives as long as a connection counts under it, and belongs to the hub's
 * map. A router counts what comes to itself.
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
    uint64_t body_bytes; /* taken of request bodies that are not complete */
    unsigned gatherers; /* connections whose bytes may wait unseen in their sockets (conn_gather) */
};

/* Writes what an address is counted under and returns it: IPv4 whole, IPv6 by its first 64 bits,
 * which one host has to itself; all others together. */
struct str caller_of_address(const struct sockaddr_storage *from, char text[CALLER_NAME_MAX]);

/* Makes the name of a caller by a key of that scope (an agent's, a runner's, an executor's) and its
 * id. The scopes are counted separately, so an agent's use of its key takes nothing from the runner
 * of the same session. */
struct str caller_of_key(enum key_scope scope, struct str id, char text[CALLER_NAME_MAX]);

/* How many connections count under a name. */
size_t callers_connections(const struct map *all, struct str name);

/* Counts one more connection of the caller. */
struct caller *callers_join(struct map *all, struct str name);

/* The connection counts no longer; NULL is accepted. */
void callers_leave(struct map *all, struct caller *c);

#endif
