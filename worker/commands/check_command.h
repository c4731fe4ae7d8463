/*
 * `rollgate check DIR`: loads a model folder and reports its contents, unsupported features, and
 * how turns are separated. rollgate check [DIR] [--chat-template FILE] [--tool-parser NAME]
 * [--reasoning-parser NAME]
 *                  [--tito-family NAME] [--context-length N]
 * Without DIR: the built-in model.
 */
#ifndef RG_COMMANDS_CHECK_COMMAND_H
#define RG_COMMANDS_CHECK_COMMAND_H

/* Runs the command; argv[0] is "check". Returns the exit status: 0 (the model can be served), 1 (it
 * cannot; the reason is printed) or 2 (usage). */
int check_command(int argc, char **argv);

#endif
