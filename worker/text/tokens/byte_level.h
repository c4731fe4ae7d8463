/*
 * The byte-level alphabet of GPT-2: a printable character for each byte. Bytes 0x21..0x7e,
 * 0xa1..0xac and 0xae..0xff represent themselves. The other 68 are U+0100 onwards in order.
 */
#ifndef RG_TOKENS_BYTE_LEVEL_H
#define RG_TOKENS_BYTE_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

/* Returns the character of a byte. */
static inline uint32_t byte_level_char(unsigned char b)
{
    if (b <= 0x20)
        return 0x100u + b;
    if (b >= 0x7f && b <= 0xa0)
        return 0x100u + 33 + (b - 0x7fu);
    return b == 0xad ? 0x143 : b;
}

/* Returns the byte of a character, or -1 if it is not in the alphabet. */
static inline int byte_level_byte(uint32_t cp)
{
    if (cp >= 0x100 && cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142)
        return (int)(cp - 0x121 + 0x7f);
    if (cp == 0x143)
        return 0xad;
    if (cp > 0xff || cp <= 0x20 || (cp >= 0x7f && cp <= 0xa0) || cp == 0xad)
        return -1;
    return (int)cp;
}

/* Appends the alphabet's characters for these bytes. */
void byte_level_write(struct str bytes, struct buf *out);

/* Appends the bytes of a piece in the alphabet. If a character is not in it, appends the piece
 * unchanged and returns false. */
bool byte_level_read(struct str piece, struct buf *out);

#endif
