/* Each sequence of bytes has one text: the unused bits of the last group must be zero. If a text
 * comes in pieces (base64_feed), up to three characters wait for the fourth. */

#include "common/codec/base64.h"

#include <stdint.h>

#include "common/base/attrs.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum { VALID = 0x40 };

/* VALID | value of each character of the alphabet; 0 for other bytes. */
static const uint8_t values[256] = {
    ['A'] = 64,  ['B'] = 65,  ['C'] = 66,  ['D'] = 67,  ['E'] = 68,  ['F'] = 69,  ['G'] = 70,
    ['H'] = 71,  ['I'] = 72,  ['J'] = 73,  ['K'] = 74,  ['L'] = 75,  ['M'] = 76,  ['N'] = 77,
    ['O'] = 78,  ['P'] = 79,  ['Q'] = 80,  ['R'] = 81,  ['S'] = 82,  ['T'] = 83,  ['U'] = 84,
    ['V'] = 85,  ['W'] = 86,  ['X'] = 87,  ['Y'] = 88,  ['Z'] = 89,  ['a'] = 90,  ['b'] = 91,
    ['c'] = 92,  ['d'] = 93,  ['e'] = 94,  ['f'] = 95,  ['g'] = 96,  ['h'] = 97,  ['i'] = 98,
    ['j'] = 99,  ['k'] = 100, ['l'] = 101, ['m'] = 102, ['n'] = 103, ['o'] = 104, ['p'] = 105,
    ['q'] = 106, ['r'] = 107, ['s'] = 108, ['t'] = 109, ['u'] = 110, ['v'] = 111, ['w'] = 112,
    ['x'] = 113, ['y'] = 114, ['z'] = 115, ['0'] = 116, ['1'] = 117, ['2'] = 118, ['3'] = 119,
    ['4'] = 120, ['5'] = 121, ['6'] = 122, ['7'] = 123, ['8'] = 124, ['9'] = 125, ['+'] = 126,
    ['/'] = 127,
};

/* Decodes the last group, which ends with one or two '='. Returns the number of bytes written, or
 * -1. */
static int decode_padded(const uint8_t *p, uint8_t *out)
{
    uint32_t a = values[p[0]], b = values[p[1]], c = values[p[2]];

    if (p[3] != '=' || !(a & b & VALID))
        return -1;
    out[0] = (uint8_t)(a << 2 | (b & 63) >> 4);
    if (p[2] == '=')
        return b & 15 ? -1 : 1;
    if (!(c & VALID) || (c & 3))
        return -1;
    out[1] = (uint8_t)(b << 4 | (c & 63) >> 2);
    return 2;
}

int base64_decode(struct str text, void *out, size_t *ret)
{
    const uint8_t *p = (const uint8_t *)text.p;
    const uint8_t *end = p + text.len;
    uint8_t *to = out;
    int tail = 0;

    *ret = 0;
    if (text.len % 4 != 0)
        return -1;
    if (text.len > 0 && end[-1] == '=')
        end -= 4;
    for (; p < end; p += 4, to += 3) {
        uint32_t a = values[p[0]], b = values[p[1]], c = values[p[2]], d = values[p[3]];

        if (RG_UNLIKELY(!(a & b & c & d & VALID)))
            return -1;
        to[0] = (uint8_t)(a << 2 | (b & 63) >> 4);
        to[1] = (uint8_t)(b << 4 | (c & 63) >> 2);
        to[2] = (uint8_t)(c << 6 | (d & 63));
    }
    if (text.len > 0 && p < (const uint8_t *)text.p + text.len) {
        tail = decode_padded(p, to);
        if (tail < 0)
            return -1;
    }
    *ret = (size_t)(to - (uint8_t *)out) + (size_t)tail;
    return 0;
}

/* Decodes whole groups of four characters and appends their bytes. Groups after the padding are an
 * error. */
static int feed_groups(struct base64_reader *r, struct str groups, struct buf *out)
{
    size_t n;

    if (groups.len == 0)
        return 0;
    if (r->ended || base64_decode(groups, buf_reserve(out, base64_room(groups.len)), &n) < 0)
        return -1;
    out->len += n;
    r->ended = groups.p[groups.len - 1] == '=';
    return 0;
}

int base64_feed(struct base64_reader *r, struct str piece, struct buf *out)
{
    size_t whole;

    while (r->n > 0 && piece.len > 0) {
        r->quad[r->n++] = *piece.p;
        piece = str_sub(piece, 1, piece.len);
        if (r->n == 4) {
            r->n = 0;
            if (feed_groups(r, str_of(r->quad, 4), out) < 0)
                return -1;
        }
    }
    whole = piece.len & ~(size_t)3;
    if (feed_groups(r, str_of(piece.p, whole), out) < 0)
        return -1;
    while (whole < piece.len)
        r->quad[r->n++] = piece.p[whole++];
    return 0;
}

int base64_finish(const struct base64_reader *r)
{
    return r->n == 0 ? 0 : -1;
}

void base64_encode(const void *bytes, size_t n, char *out)
{
    const uint8_t *p = bytes;

    for (; n >= 3; n -= 3, p += 3, out += 4) {
        out[0] = alphabet[p[0] >> 2];
        out[1] = alphabet[(p[0] << 4 | p[1] >> 4) & 63];
        out[2] = alphabet[(p[1] << 2 | p[2] >> 6) & 63];
        out[3] = alphabet[p[2] & 63];
    }
    if (n == 0)
        return;
    out[0] = alphabet[p[0] >> 2];
    out[1] = alphabet[(p[0] << 4 | (n == 2 ? p[1] >> 4 : 0)) & 63];
    out[2] = n == 2 ? alphabet[p[1] << 2 & 63] : '=';
    out[3] = '=';
}

void base64_append(struct buf *out, const void *bytes, size_t n)
{
    base64_encode(bytes, n, buf_reserve(out, base64_encoded_len(n)));
    out->len += base64_encoded_len(n);
}
