/*
 * Compares two texts block by block, so that comparing equal texts of megabytes costs only reading
 * them. Pure.
 */
#ifndef RG_SESSION_TEXT_COMPARE_H
#define RG_SESSION_TEXT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

/* Returns the number of leading bytes that are equal. */
size_t texts_agree(struct str x, struct str y);

/* Reports whether the texts are equal except for spaces, tabs and line ends, anywhere. *went grows
 * by the bytes of both that were read. */
bool texts_same_but_blanks(struct str x, struct str y, size_t *went);

#endif
