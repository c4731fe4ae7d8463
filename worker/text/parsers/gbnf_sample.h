/*
 * Finds a sentence of a grammar in the notation of gbnf.h, including grammars of clients: the
 * shortest, the first of equals. The built-in engine answers with it if a grammar is enforced.
 * Pure.
 */
#ifndef RG_PARSERS_GBNF_SAMPLE_H
#define RG_PARSERS_GBNF_SAMPLE_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { GBNF_SAMPLE_MAX = 8192 };

/* Appends a sentence of the rule `root`. Returns -1 with ERR_INVALID if the text is not such a
 * grammar, or if no sentence is short enough. */
int gbnf_sample(struct str grammar, struct buf *out, struct err *e);

#endif
