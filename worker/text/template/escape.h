/*
 * Escapes of string literals in templates (Python's unicode-escape), and of HTML.
 */
#ifndef RG_TEMPLATE_ESCAPE_H
#define RG_TEMPLATE_ESCAPE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/str.h"

/* Decodes the inside of a quoted literal. Returns -1 for escapes that Python refuses (\x, \u, \U
 * too short or beyond Unicode) and for \N; *why has the reason, a static text. */
int escape_decode(struct arena *a, struct str raw, struct str *ret, const char **why);

/* Returns the number of bytes that escape_html adds, or a few more. */
uint64_t escape_html_size(struct str s);

/* Appends s with & < > ' " escaped in the same way as markupsafe does it. */
void escape_html(struct buf *out, struct str s);

#endif
