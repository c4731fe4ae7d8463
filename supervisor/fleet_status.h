/* `rollgate fleet status`: the nodes of a fleet, and their places, as a running gateway sees them.
 */
#ifndef RG_SUPERVISOR_FLEET_STATUS_H
#define RG_SUPERVISOR_FLEET_STATUS_H

/* Runs the command; argv[0] is "status". Returns the exit status: 0, 1 (no answer) or 2 (usage). */
int fleet_status_command(int argc, char **argv);

#endif
