/* `rollgate fleet take` and `forget`: what an operator decides about a lost node, because no living
 * node can. The command needs only the store. */
#ifndef RG_SUPERVISOR_FLEET_REPAIR_H
#define RG_SUPERVISOR_FLEET_REPAIR_H

#include <stdbool.h>

/* Reports whether the word is one of these commands. */
bool fleet_repair_has_command(const char *word);

/* Runs the command; argv[0] is its word. Returns the exit status: 0, 1 (refused, or no answer) or 2
 * (usage). */
int fleet_repair_command(int argc, char **argv);

#endif
