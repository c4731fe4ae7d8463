/*
 * Flags of one command that are not settings. Each function removes from argv what it has read. The
 * words that remain are the command's settings and arguments, in any order.
 */
#ifndef RG_PROC_COMMAND_LINE_H
#define RG_PROC_COMMAND_LINE_H

#include <stdbool.h>

/* Removes the first argument equal to `flag` ("--once"). Returns whether it was there. */
bool command_line_take_flag(int *argc, char **argv, const char *flag);

/* Removes `flag VALUE` or `flag=VALUE`. Returns the value, which is in argv's memory, or
 * `otherwise` if the flag or its value is missing. */
const char *command_line_take_value(int *argc, char **argv, const char *flag,
                                    const char *otherwise);

#endif
