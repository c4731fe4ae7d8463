/*
 * UTF-8 as Unicode 15 table 3-7 defines it: no overlongs, no surrogates, nothing above U+10FFFF.
 * Pure: bytes in, values out.
 */
#ifndef RG_CODEC_UTF8_H
#define RG_CODEC_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/* Bytes of the longest valid prefix that ends at a character's end; s.len when all is valid. */
size_t utf8_valid_len(struct str s);

static inline bool utf8_valid(struct str s)
{
    return utf8_valid_len(s) == s.len;
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
