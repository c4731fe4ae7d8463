/*
 * Hexadecimal digits.
 */
#ifndef RG_CODEC_HEX_H
#define RG_CODEC_HEX_H

#include <stddef.h>

/* Returns the value of a hexadecimal digit in upper or lower case, or -1. */
static inline int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Writes 2 * n lower-case digits, without a NUL. Returns the position after the last digit. */
static inline char *hex_write(char *to, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

#endif
