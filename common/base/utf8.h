/*
 * UTF-8 as Unicode 15 table 3-7 defines it: no overlong forms, no surrogates, nothing above
 * U+10FFFF. Pure.
 */
#ifndef RG_BASE_UTF8_H
#define RG_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/str.h"

/* Returns the length of the longest valid prefix that ends with a whole character. s.len: all is
 * valid. */
size_t utf8_valid_len(struct str s);

/* Reports whether s is valid. Inline, because short texts such as tokens are mostly ASCII; the
 * first bytes are checked four at a time. */
static inline bool utf8_valid(struct str s)
{
    size_t n = 0;
    uint32_t four;

    for (; n + 4 <= s.len && n < 16; n += 4) {
        memcpy(&four, s.p + n, 4);
        if (four & 0x80808080)
            break;
    }
    for (; n < s.len && n < 16 && (unsigned char)s.p[n] < 0x80; n++)
        ;
    return n == s.len || utf8_valid_len(str_sub(s, n, s.len)) == s.len - n;
}

/* Decodes the first character of s into *cp. Returns its number of bytes, 1 to 4. Returns 0 if s is
 * empty or ends inside a character, and -1 if s does not begin with a valid one. */
int utf8_decode(struct str s, uint32_t *cp);

/* Writes cp, which is at most 0x10FFFF, to out. Surrogates get their three-byte form. Returns the
 * number of bytes. */
size_t utf8_encode(char out[static 4], uint32_t cp);

/* Returns the largest length of at most n bytes at which s can be cut without cutting a
 * character. */
static inline size_t utf8_cut(struct str s, size_t n)
{
    n = n < s.len ? n : s.len;
    while (n > 0 && n < s.len && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return n;
}

/* Returns the number of characters of valid text. For other bytes, counts those that are not
 * continuation bytes. */
size_t utf8_count(struct str s);

#endif
