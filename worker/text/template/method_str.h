/*
 * Reads arguments, for the files of str methods.
 */
#ifndef RG_TEMPLATE_METHOD_STR_H
#define RG_TEMPLATE_METHOD_STR_H

#include "worker/text/template/run.h"

/* Reads an int argument (dflt if it is missing or None). Returns false with a TypeError. */
bool arg_int(struct template_run *r, struct value v, int64_t dflt, int64_t *ret);

/* Reads a string argument. Returns false with a TypeError. */
bool arg_str(struct template_run *r, struct value v, struct str *ret);

/* Reads a string argument, HTML-escaped if the receiver is Markup. */
bool arg_like(struct template_run *r, struct value v, struct value self, struct str *ret);

/* Computes str.replace; count < 0: all occurrences. */
struct value method_replace(struct template_run *r, struct value self, struct str old,
                            struct str new, int64_t count);

#endif
