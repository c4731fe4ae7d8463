/*
 * `rollgate backup STATE_DIR NEW_DIR`: a copy of a state folder that is complete although a gateway
 * uses it: every turn that was answered before the start of the command is in it.
 */
#ifndef RG_COMMANDS_BACKUP_COMMAND_H
#define RG_COMMANDS_BACKUP_COMMAND_H

/* argv[0] is "backup". Returns the exit status: 0, 1 (failed; NEW_DIR does not exist) or 2. */
int backup_command(int argc, char **argv);

#endif
