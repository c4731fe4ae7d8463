/*
 * UTF-8 as Unicode 15 table 3-7 defines it: no overlongs, no surrogates, nothing above U+10FFFF.
 * Pure: bytes in, values out.
 */
#ifndef RG_CODEC_UTF8_H
#define RG_CODEC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/str.h"

/* Bytes of the longest valid prefix that ends at a character's end; s.len when all is valid. */
size_t utf8_valid_len(struct str s);

/* Short texts, tokens say, are mostly ASCII: four bytes at a time. */
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

/* Reads the character at the front of s. Returns its bytes (1-4) and sets *cp; 0 when s ends
 * inside a character that more bytes could complete (or is empty); -1 when no character starts
 * so. */
int utf8_decode(struct str s, uint32_t *cp);

/* Writes cp (at most 0x10FFFF; surrogates in their three-byte form) to out; returns its bytes. */
size_t utf8_encode(char out[static 4], uint32_t cp);

/* Characters in valid text; in other bytes, those that are no continuation byte. */
size_t utf8_count(struct str s);

#endif
