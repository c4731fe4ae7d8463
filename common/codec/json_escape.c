/*
 * Strings with escapes are decoded into one buffer, each after the previous one (json.c). Runs of
 * plain bytes are copied 16 at a time, or 64 at a time while all escapes are simple.
 */
#include <string.h>

#include "common/base/utf8.h"
#include "common/codec/hex.h"
#include "common/codec/json_reader.h"
#include "common/codec/json_trace.h"

enum { BLOCK = 64, OUT_SLACK = BLOCK }; /* copies store whole blocks, which may exceed the string */

/* Copies plain bytes to r->out, up to the first byte that is not plain or the end of the text. */
static inline void copy_plain(struct json_reader *r)
{
    const char *p = r->at, *end = r->end;
    char *out = r->out;

#ifdef __SSE2__
    while (end - p >= 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned mask = json_special_bytes(c);

        _mm_storeu_si128((__m128i *)(void *)out, c);
        if (mask) {
            r->at = p + __builtin_ctz(mask);
            r->out = out + __builtin_ctz(mask);
            return;
        }
        p += 16;
        out += 16;
    }
#endif
    while (p < end && json_is_plain(*p))
        *out++ = *p++;
    r->at = p;
    r->out = out;
}

/* Reads four hexadecimal digits. Returns -1 if there are not four. */
static int32_t read_hex4(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_value(p[i]);

        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Records that a lone surrogate was read whose escape ends at r->at. */
static void record_surrogate(struct json_reader *r)
{
    if (r->trace && !r->has_surrogate)
        r->trace->surrogate_at = json_place(r, r->at);
    r->has_surrogate = true;
}

/* Reads \uXXXX, with r->at after the u. A pair of surrogate escapes becomes one character. */
static int read_unicode_escape(struct json_reader *r, uint8_t *flags)
{
    int32_t cp = read_hex4(r->at, r->end);

    if (cp < 0)
        return json_fail(r, r->at, "bad \\u escape");
    r->at += 4;
    if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        int32_t low = read_hex4(r->at + 2, r->end);

        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            r->at += 6;
        }
    }
    if (cp >= 0xd800 && cp < 0xe000) {
        *flags |= JSON_SURROGATE;
        record_surrogate(r);
        cp = r->replaces ? 0xfffd : cp;
    }
    if (cp < 0x80)
        *r->out++ = (char)cp;
    else
        r->out += utf8_encode(r->out, (uint32_t)cp);
    return 0;
}

/* Reads one escape, with r->at after the backslash. */
static int read_escape(struct json_reader *r, uint8_t *flags)
{
    char c;

    if (r->at == r->end)
        return json_fail_here(r);
    c = *r->at++;
    switch (c) {
    case 'n':
        c = '\n';
        break;
    case 't':
        c = '\t';
        break;
    case 'r':
        c = '\r';
        break;
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case '"':
    case '\\':
    case '/':
        break;
    case 'u':
        return read_unicode_escape(r, flags);
    default:
        return json_fail(r, r->at - 1, "unknown escape");
    }
    *r->out++ = c;
    return 0;
}

/* The byte that each simple escape means, by the character after the backslash; 0: not a simple
 * escape. */
static const char SIMPLE_ESCAPES[256] = {['n'] = '\n', ['t'] = '\t', ['r'] = '\r',  ['b'] = '\b',
                                         ['f'] = '\f', ['"'] = '"',  ['\\'] = '\\', ['/'] = '/'};

#ifdef __SSE2__
/* Decodes blocks of 64 bytes while all escapes are simple. Uses one mask for each block and copies
 * of fixed size: the lengths of runs between escapes would defeat branch prediction. */
static void decode_blocks(struct json_reader *r)
{
    const char *p = r->at;
    char *out = r->out, c;

    while (r->end - p >= 2 * BLOCK + 2) {
        uint64_t mask = 0;
        size_t done = 0;

        for (size_t i = 0; i < BLOCK; i += 16)
            mask |= (uint64_t)json_special_bytes(
                        _mm_loadu_si128((const __m128i *)(const void *)(p + i)))
                    << i;
        for (; mask; mask &= mask - 1) {
            size_t at = (size_t)__builtin_ctzll(mask);

            if (at < done)
                continue; /* the second byte of an escape */
            memcpy(out, p + done, BLOCK);
            out += at - done;
            c = p[at] == '\\' ? SIMPLE_ESCAPES[(uint8_t)p[at + 1]] : 0;
            if (!c) {
                r->at = p + at;
                r->out = out;
                return;
            }
            *out++ = c;
            done = at + 2;
        }
        if (done < BLOCK) {
            memcpy(out, p + done, BLOCK);
            out += BLOCK - done;
            done = BLOCK;
        }
        p += done;
    }
    r->at = p;
    r->out = out;
}
#else
static void decode_blocks(struct json_reader *r)
{
    (void)r;
}
#endif

size_t json_decoding_bytes(size_t bytes)
{
    return arena_rounded(bytes + OUT_SLACK);
}

/* Allocates the buffer for this string and all later ones with escapes. If the trace knows the
 * first such string, its buffer is counted in the budget already. */
static void begin_decoding(struct json_reader *r, const char *start)
{
    size_t bytes = (size_t)(r->end - start), used = r->arena->used_bytes;

    r->out = arena_alloc(r->arena, bytes + OUT_SLACK);
    if (!r->trace)
        return;
    if (r->trace->escaped_at == SIZE_MAX) {
        r->trace->escaped_at = json_place(r, start);
        r->uncounted += r->arena->used_bytes - used;
    } else {
        r->arena->used_bytes = used;
    }
}

int json_read_escaped(struct json_reader *r, const char *start, struct json *ret)
{
    size_t n = (size_t)(r->at - start);
    char *text;

    if (!r->out)
        begin_decoding(r, start);
    text = r->out;
    ret->flags = 0;
    memcpy(r->out, start, n);
    r->out += n;
    decode_blocks(r);
    copy_plain(r);
    while (r->at < r->end && *r->at == '\\') {
        r->at++;
        if (read_escape(r, &ret->flags) < 0)
            return -1;
        decode_blocks(r);
        copy_plain(r);
    }
    if (r->at == r->end)
        return json_fail_here(r);
    if (*r->at != '"')
        return json_fail(r, r->at, "control character in a string");
    r->at++;
    ret->n = (uint32_t)(r->out - text);
    ret->text = text;
    return 0;
}
