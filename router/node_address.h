/*
 * struct node_address: where a router reaches a different node of the fleet. Names are resolved in
 * the background, so the address may not be known yet. A zeroed one has no address.
 */
#ifndef RG_ROUTER_NODE_ADDRESS_H
#define RG_ROUTER_NODE_ADDRESS_H

#include "common/net/resolve.h"

struct node_address {
    char *text; /* HOST:PORT as the node published it; NULL: none yet */
    struct resolve names;
    size_t turn; /* the address in use, modulo their number */
};

/* Takes over the published text if it has changed. Returns the address to connect to, or NULL if
 * it is not known now. */
const struct resolve_address *node_address_find(struct node_address *a, struct loop *l,
                                                const char *text);

/* The address cannot be reached: the next one is tried, and the name is resolved again. */
void node_address_failed(struct node_address *a);

void node_address_done(struct node_address *a);

#endif
