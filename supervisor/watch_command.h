/*
 * `rollgate watch [ID]`: prints the events of the gateway (or of one session) as lines, until the
 * stream ends.
 */
#ifndef RG_SUPERVISOR_WATCH_COMMAND_H
#define RG_SUPERVISOR_WATCH_COMMAND_H

/* Returns the exit status: 0 (the gateway ended the stream), 1 (no gateway, or it refused),
 * 2 (usage). */
int watch_command(int argc, char **argv);

#endif
