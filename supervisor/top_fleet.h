/*
 * The nodes of a fleet in `rollgate top`: GET /fleet and GET /stats of each node.
 */
#ifndef RG_SUPERVISOR_TOP_FLEET_H
#define RG_SUPERVISOR_TOP_FLEET_H

#include "common/base/str.h"

struct buf;
struct gateway_client;

/* Asks for the nodes if `stats`, an answer of GET /stats, is one of a fleet's node. Appends
 * {name, nodes: [...]} as JSON; nothing without a fleet. A node that is lost has no figures. */
void top_fleet_read(struct gateway_client *c, struct str stats, struct buf *ret);

/* Prints a line for each node of such JSON; nothing if it is empty. */
void top_fleet_print(struct str fleet);

#endif
