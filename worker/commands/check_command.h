/*
 * `rollgate check DIR`: loads a model folder and reports its contents, what is unsupported, and how
 * turns are separated. Exit status 0: it can be served; 1: it cannot, with the reason.
 *   rollgate check [DIR] [--chat-template FILE] [--tool-parser NAME] [--reasoning-parser NAME]
 *                  [--tito-family NAME] [--context-length N]
 * Without DIR: the built-in model.
 */
#ifndef RG_COMMANDS_CHECK_COMMAND_H
#define RG_COMMANDS_CHECK_COMMAND_H

/* argv[0] is "check". Returns the exit status. */
int check_command(int argc, char **argv);

#endif
