/*
 * `rollgate backup STATE_DIR NEW_DIR`: copies a state folder while a gateway may use it. The copy
 * contains every turn that was answered before the command started.
 */
#ifndef RG_COMMANDS_BACKUP_COMMAND_H
#define RG_COMMANDS_BACKUP_COMMAND_H

/* Runs the command; argv[0] is "backup". Returns the exit status: 0, 1 (failed; NEW_DIR does not
 * exist) or 2 (usage). */
int backup_command(int argc, char **argv);

#endif
