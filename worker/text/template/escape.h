/*
 * Escapes: those of string literals in templates (Python's unicode-escape), and HTML's.
 */
#ifndef RG_TEMPLATE_ESCAPE_H
#define RG_TEMPLATE_ESCAPE_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/str.h"

/* The inside of a quoted literal to its text. -1 for escapes that Python refuses (\x, \u, \U cut
 * short or beyond Unicode, \N without a known name); *why says it, a static text. */
int escape_decode(struct arena *a, struct str raw, struct str *ret, const char **why);

/* The bytes that escape_html adds, or a few more. */
uint64_t escape_html_size(struct str s);

/* Appends s with & < > ' " as markupsafe writes them. */
void escape_html(struct buf *out, struct str s);

#endif
