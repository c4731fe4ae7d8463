/* The three-byte form of a half begins with 0xed and a byte of at least 0xa0. No valid text has
 * these bytes. */
#include "common/codec/surrogates.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/base/utf8.h"

enum { LOW_FIRST = 0xdc00, HIGH_FIRST = 0xd800, PLANES = 0x10000, HALF_BYTES = 3 };

/* Returns the half at the start of s. 0: s does not begin with a half. */
static uint32_t read_half(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;

    if (s.len < HALF_BYTES || p[0] != 0xed || p[1] < 0xa0)
        return 0;
    return HIGH_FIRST | (uint32_t)(p[1] & 0x1f) << 6 | (p[2] & 0x3f);
}

static void add_character(struct buf *out, uint32_t cp)
{
    char bytes[4];

    buf_add(out, bytes, utf8_encode(bytes, cp));
}

static void add_replacement(struct surrogates *s, struct buf *out)
{
    add_character(out, 0xfffd);
    s->replaced++;
}

static void add_half(struct surrogates *s, uint32_t half, struct buf *out)
{
    if (half >= LOW_FIRST && s->high) {
        add_character(out, PLANES + ((s->high - HIGH_FIRST) << 10) + (half - LOW_FIRST));
        s->high = 0;
        return;
    }
    surrogates_end(s, out);
    if (half >= LOW_FIRST)
        add_replacement(s, out);
    else
        s->high = half;
}

/* Returns the number of bytes before the next half, or s.len. */
static size_t bytes_before_half(struct str s)
{
    size_t at = 0;

    while (at < s.len) {
        const char *ed = memchr(s.p + at, 0xed, s.len - at);

        if (!ed)
            return s.len;
        at = (size_t)(ed - s.p);
        if (read_half(str_sub(s, at, s.len)))
            return at;
        at++;
    }
    return s.len;
}

void surrogates_add(struct surrogates *s, struct str piece, struct buf *out)
{
    while (piece.len > 0) {
        size_t n = bytes_before_half(piece);

        if (n > 0)
            surrogates_end(s, out);
        buf_add(out, piece.p, n);
        if (n < piece.len)
            add_half(s, read_half(str_sub(piece, n, piece.len)), out);
        piece = str_sub(piece, n + HALF_BYTES, SIZE_MAX);
    }
}

void surrogates_end(struct surrogates *s, struct buf *out)
{
    if (s->high)
        add_replacement(s, out);
    s->high = 0;
}

void surrogates_add_whole(struct str text, struct buf *out)
{
    struct surrogates s = {0};

    surrogates_add(&s, text, out);
    surrogates_end(&s, out);
}
