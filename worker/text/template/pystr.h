/*
 * Python's view of text over UTF-8: code points, white space, case, classes, repr. Lone surrogates
 * in three-byte form count as one code point each. Pure.
 */
#ifndef RG_TEMPLATE_PYSTR_H
#define RG_TEMPLATE_PYSTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/str.h"
#include "worker/text/template/pystr_data.h"

/* Returns the code point at byte *at and moves *at after it. */
uint32_t pystr_next(struct str s, size_t *at);

/* Returns the length in bytes of the character that starts with this byte. */
static inline size_t pystr_width(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* pystr_len returns the number of code points; the other function the byte offset of the n-th one,
 * counted from byte `from`. */
size_t pystr_len(struct str s);
size_t pystr_offset(struct str s, size_t from, size_t n);

/* Return the PYSTR_ flags of a code point, and its decimal digit value or -1. */
unsigned pystr_flags(uint32_t cp);
int pystr_decimal(uint32_t cp);

/* Computes str.strip(): which & 1 on the left, & 2 on the right. Removes white space, or any of the
 * characters in chars. */
struct str pystr_strip(struct str s, int which);
struct str pystr_strip_chars(struct str s, struct str chars, int which);

enum pystr_case {
    PYSTR_TO_UPPER,
    PYSTR_TO_LOWER,
    PYSTR_TO_TITLE,
    PYSTR_TO_CAPITAL,
    PYSTR_TO_SWAPPED,
    PYSTR_TO_FOLDED
};
struct str pystr_case(struct arena *a, struct str s, enum pystr_case to);

/* Computes str.isalpha() and its family. `what` is the method's name after "is" ("alpha",
 * "upper"). */
bool pystr_is(struct str s, const char *what);

/* pystr_quote returns the quotes of repr(s); the other function writes the text between them, for
 * all or a piece of s. */
char pystr_quote(struct str s);
void pystr_repr_inside(struct buf *out, struct str s, char quote);

/* Reads the next line of s from *at, as cut by str.splitlines. *ret has no line end; *end_len is
 * the length of the line end. Returns false at the end. */
bool pystr_line(struct str s, size_t *at, struct str *ret, size_t *end_len);

#endif
