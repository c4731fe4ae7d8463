/* ASCII is skipped 64 bytes at a time. */

#include "common/base/utf8.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Returns the first byte at or after p that is not ASCII, or end. */
static const uint8_t *skip_ascii(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    while (end - p >= 64) {
        const __m128i *v = (const __m128i *)(const void *)p;
        __m128i a = _mm_or_si128(_mm_loadu_si128(v), _mm_loadu_si128(v + 1));
        __m128i b = _mm_or_si128(_mm_loadu_si128(v + 2), _mm_loadu_si128(v + 3));

        if (_mm_movemask_epi8(_mm_or_si128(a, b)))
            break;
        p += 64;
    }
    while (end - p >= 16) {
        int high = _mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)p));

        if (high)
            return p + __builtin_ctz((unsigned)high);
        p += 16;
    }
#endif
    while (p < end && *p < 0x80)
        p++;
    return p;
}

/* Decodes the character at p, which is not ASCII. Returns its number of bytes, 0 if `end` cuts it,
 * or -1 if it is invalid. */
static int decode_multibyte(const uint8_t *p, const uint8_t *end, uint32_t *cp)
{
    uint32_t lead = p[0];
    size_t left = (size_t)(end - p);
    uint32_t low = 0x80, high = 0xbf; /* allowed second byte */
    size_t need;

    if (lead < 0xc2 || lead > 0xf4)
        return -1;
    need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (left < 2)
        return 0;
    if (p[1] < low || p[1] > high)
        return -1;
    *cp = (lead & (0x7fu >> need)) << 6 | (p[1] & 0x3fu);
    for (size_t i = 2; i < need; i++) {
        if (i >= left)
            return 0;
        if ((p[i] & 0xc0) != 0x80)
            return -1;
        *cp = *cp << 6 | (p[i] & 0x3fu);
    }
    return (int)need;
}

size_t utf8_valid_len(struct str s)
{
    const uint8_t *start = (const uint8_t *)s.p;
    const uint8_t *p = start, *end;
    uint32_t cp;

    if (s.len == 0) /* an absent text has a NULL pointer */
        return 0;
    end = start + s.len;
    for (;;) {
        if (p < end && *p < 0x80)
            p = skip_ascii(p, end);
        if (p == end)
            return s.len;
        /* Most characters of scripts with three bytes, without the general decoder. */
        while (end - p >= 3 && p[0] > 0xe0 && p[0] < 0xed && (p[1] & 0xc0) == 0x80 &&
               (p[2] & 0xc0) == 0x80)
            p += 3;
        if (p < end && *p >= 0x80) {
            int n = decode_multibyte(p, end, &cp);

            if (n <= 0)
                return (size_t)(p - start);
            p += n;
        }
    }
}

int utf8_decode(struct str s, uint32_t *cp)
{
    const uint8_t *p = (const uint8_t *)s.p;

    if (s.len == 0)
        return 0;
    if (*p < 0x80) {
        *cp = *p;
        return 1;
    }
    return decode_multibyte(p, p + s.len, cp);
}

size_t utf8_encode(char out[static 4], uint32_t cp)
{
    size_t need = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;

    if (need == 1) {
        out[0] = (char)cp;
        return 1;
    }
    for (size_t i = need - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)((0xf00u >> need & 0xffu) | cp);
    return need;
}

size_t utf8_count(struct str s)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t n = s.len, i = 0;

    /* Eight bytes at a time: continuation bytes are those with bit 7 set and bit 6 clear. */
    for (; i + 8 <= s.len; i += 8) {
        uint64_t w;

        memcpy(&w, s.p + i, 8);
        n -= (((w >> 7) & (~w >> 6) & ones) * ones) >> 56;
    }
    for (; i < s.len; i++)
        n -= ((unsigned char)s.p[i] & 0xc0) == 0x80;
    return n;
}
