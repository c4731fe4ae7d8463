/*
 * Text from outside for a terminal. Control characters could move its cursor or do worse, and
 * direction marks would reorder the line: each becomes a question mark.
 */
#ifndef RG_SUPERVISOR_TERMINAL_TEXT_H
#define RG_SUPERVISOR_TERMINAL_TEXT_H

#include <stdio.h>

#include "common/base/str.h"

enum { TERMINAL_NAME = 64 };

/* Copies a name into `out`, cut to its size. Returns `out`. */
const char *terminal_name(struct str name, char out[TERMINAL_NAME]);

/* Prints a text with its line feeds and tabs. `margin` blanks follow each line feed. */
void terminal_write(FILE *out, struct str text, int margin);

#endif
