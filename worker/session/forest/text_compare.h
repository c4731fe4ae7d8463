/*
 * How far two texts are alike: equal stretches are compared a block at a time, so texts of
 * megabytes that agree cost what reading them costs. Pure.
 */
#ifndef RG_SESSION_TEXT_COMPARE_H
#define RG_SESSION_TEXT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

/* Bytes that both begin with. */
size_t texts_agree(struct str x, struct str y);

/* Whether they are equal but for spaces, tabs and line ends, wherever those stand. *went grows by
 * the bytes that were read of both. */
bool texts_same_but_blanks(struct str x, struct str y, size_t *went);

#endif
