/*
 * Finds a sentence of a grammar in the notation of gbnf.h, also of client-written ones: the
 * shortest, the first of equals. The built-in engine answers with it if a grammar is enforced.
 * Pure.
 */
#ifndef RG_PARSERS_GBNF_SAMPLE_H
#define RG_PARSERS_GBNF_SAMPLE_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { GBNF_SAMPLE_MAX = 8192 };

/* Appends a sentence of the rule `root`. ERR_INVALID: not such a grammar, or none of its sentences
 * is short enough to be found. */
int gbnf_sample(struct str grammar, struct buf *out, struct err *e);

#endif
