/*
 * struct json_reader: the state of one reading (json.c), for the files that share it: strings with
 * escapes are decoded in json_escape.c. Internal to the reader.
 */
#ifndef RG_CODEC_JSON_READER_H
#define RG_CODEC_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec/json.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct json_trace;

struct json_reader {
    const char *start, *at, *end;
    size_t before; /* bytes of the text before `start` */
    struct arena *arena;
    struct json *stack;
    size_t n, cap;
    char *out; /* where the next decoded string goes; NULL before the first */
    unsigned depth;
    size_t check_at;          /* number of values on the stack at which the budget is checked */
    bool once;                /* a duplicate key in one object is an error */
    bool replaces;            /* U+FFFD takes the place of lone surrogates */
    bool has_surrogate;       /* a lone one was read */
    struct json twice;        /* such a key, JSON_NULL: none was seen */
    struct json_trace *trace; /* or NULL */
    unsigned followed;        /* depth of the list that is followed, while it is read; else 0 */
    size_t uncounted;         /* used bytes of the arena that are not values of this text */
    struct err *e;
};

/* Its place in the whole text. */
static inline size_t json_place(const struct json_reader *r, const char *at)
{
    return r->before + (size_t)(at - r->start);
}

/* -1 and e: what is wrong with the byte there. */
int json_fail(struct json_reader *r, const char *at, const char *what);

/* Reports the unexpected next byte, or the text's end. Returns -1. */
int json_fail_here(struct json_reader *r);

/* Returns the budget that decoding a text of so many bytes needs. */
size_t json_decoding_bytes(size_t bytes);

/* json_escape.c: the string that starts at `start` and has its first backslash at r->at. */
int json_read_escaped(struct json_reader *r, const char *start, struct json *ret);

static inline bool json_is_plain(char c)
{
    return c != '"' && c != '\\' && (uint8_t)c >= 0x20;
}

#ifdef __SSE2__
/* Returns a bit for each of 16 bytes that is a quote, a backslash or a control byte. */
static inline unsigned json_special_bytes(__m128i c)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(c, quote), _mm_cmpeq_epi8(c, slash));

    return (unsigned)_mm_movemask_epi8(
        _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(c, control), c)));
}
#endif

#endif
