/*
 * Flags of one command, which are no settings: each function removes what it read from argv, so
 * that the words left over are the command's settings and arguments, in any order.
 */
#ifndef RG_PROC_COMMAND_LINE_H
#define RG_PROC_COMMAND_LINE_H

#include <stdbool.h>

/* Removes the first argument equal to `flag` ("--once"). Returns whether it was there. */
bool command_line_take_flag(int *argc, char **argv, const char *flag);

/* Removes `flag VALUE` or `flag=VALUE`. Returns the value, which argv keeps alive, or `otherwise`
 * if the flag or its value is missing. */
const char *command_line_take_value(int *argc, char **argv, const char *flag,
                                    const char *otherwise);

#endif
