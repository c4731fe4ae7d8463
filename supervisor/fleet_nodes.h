/* `rollgate fleet status`, `endpoints` and `drain`. */
#ifndef RG_SUPERVISOR_FLEET_NODES_H
#define RG_SUPERVISOR_FLEET_NODES_H

#include <stdbool.h>

/* Reports whether the word is one of these commands. */
bool fleet_nodes_has_command(const char *word);

/* Runs the command; argv[0] is its word. Returns the exit status: 0, 1 (no answer) or 2 (usage). */
int fleet_nodes_command(int argc, char **argv);

#endif
