/*
 * struct listed_nodes: the nodes of the fleet in the order in which a list goes through them, by
 * name. So a cursor that names a node continues the same list at every node.
 */
#ifndef RG_CONTROL_LISTED_NODES_H
#define RG_CONTROL_LISTED_NODES_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct heritage;
struct listed_nodes;
struct str;

struct listed_node {
    const char *name;
    uint32_t slot;
    bool is_self;
};

/* Finds this node and those that must be asked. Cuts the name of a node off the cursor, and makes
 * that node the current one. If the node is gone, the next one is current, without a cursor.
 * Returns NULL if the cursor names no node. */
struct listed_nodes *listed_nodes_new(const struct heritage *h, struct str *cursor, struct err *e);
void listed_nodes_free(struct listed_nodes *n); /* accepts NULL */

/* Returns the current node, or NULL after the last one. */
const struct listed_node *listed_nodes_current(const struct listed_nodes *n);

/* Makes the next node the current one. */
void listed_nodes_advance(struct listed_nodes *n);

#endif
