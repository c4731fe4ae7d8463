/* `rollgate fleet status`, `endpoints` and `drain`. */
#ifndef RG_SUPERVISOR_FLEET_NODES_H
#define RG_SUPERVISOR_FLEET_NODES_H

#include <stdbool.h>

#include "common/base/str.h"

struct json;

/* Counts the places of a node (an absent name: without an owner), and those that are not whole. */
unsigned fleet_nodes_count_places(const struct json *places, struct str name,
                                  unsigned *ret_partial);

/* Reports whether the word is one of these commands. */
bool fleet_nodes_has_command(const char *word);

/* Runs the command; argv[0] is its word. Returns the exit status: 0, 1 (no answer) or 2 (usage). */
int fleet_nodes_command(int argc, char **argv);

#endif
