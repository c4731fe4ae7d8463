/*
 * Unicode normalization forms over the reference library's tables (Unicode 9; see unicode.h). The
 * algorithm is Unicode standard annex 15 (decompose, order by combining class, compose). It is
 * applied only to stretches with a character that may change. Linear: runs of marks are ordered by
 * a stable counting sort.
 */
#ifndef RG_TOKENS_NORMAL_FORM_H
#define RG_TOKENS_NORMAL_FORM_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

enum normal_form { NORMAL_C, NORMAL_D, NORMAL_KC, NORMAL_KD };

/* Reports whether the text is certainly in this form already (false: perhaps not). */
bool normal_form_holds(enum normal_form form, struct str text);

/* Appends the normalized text (valid UTF-8) to out. */
void normal_form_apply(enum normal_form form, struct str text, struct buf *out);

#endif
