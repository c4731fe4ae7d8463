/* Conversion between text and the byte-level alphabet (byte_level.h). A byte of text becomes at
 * most two bytes, because the alphabet ends at U+0143. */

#include "worker/text/tokens/byte_level.h"

#include "worker/text/tokens/unicode.h"

void byte_level_write(struct str bytes, struct buf *out)
{
    char *at = buf_reserve(out, bytes.len * 2);

    for (size_t i = 0; i < bytes.len; i++) {
        uint32_t cp = byte_level_char((unsigned char)bytes.p[i]);

        if (cp < 0x80) {
            *at++ = (char)cp;
        } else {
            *at++ = (char)(0xc0 | cp >> 6);
            *at++ = (char)(0x80 | (cp & 0x3f));
        }
    }
    out->len = (size_t)(at - out->p);
}

bool byte_level_read(struct str piece, struct buf *out)
{
    size_t before = out->len, i = 0;

    buf_reserve(out, piece.len);
    while (i < piece.len) {
        uint32_t cp;
        int b;

        i += unicode_read(piece.p + i, &cp);
        b = byte_level_byte(cp);
        if (b < 0) {
            out->len = before;
            buf_add_str(out, piece);
            return false;
        }
        out->p[out->len++] = (char)b;
    }
    return true;
}
