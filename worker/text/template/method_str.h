/*
 * Shared by the files of str methods: reading arguments.
 */
#ifndef RG_TEMPLATE_METHOD_STR_H
#define RG_TEMPLATE_METHOD_STR_H

#include "worker/text/template/run.h"

/* An int argument (dflt when missing or None); false with a TypeError. */
bool arg_int(struct template_run *r, struct value v, int64_t dflt, int64_t *ret);

/* A string argument; false with a TypeError. */
bool arg_str(struct template_run *r, struct value v, struct str *ret);

/* A string argument as the receiver wants it: HTML-escaped when that is Markup. */
bool arg_like(struct template_run *r, struct value v, struct value self, struct str *ret);

/* str.replace; count < 0: all. */
struct value method_replace(struct template_run *r, struct value self, struct str old,
                            struct str new, int64_t count);

#endif
