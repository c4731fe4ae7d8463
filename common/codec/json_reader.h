/*
 * struct json_reader: the state of one parse. json.c reads values, json_escape.c strings with
 * escapes. Internal to the reader.
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
    struct json *stack; /* that of parse_text until it is full, then `grown` */
    struct json *grown; /* own, or NULL */
    size_t n, cap;
    char *out; /* where the next decoded string is written; NULL until a string has escapes */
    unsigned depth;
    size_t check_at;    /* number of values on the stack at which the budget is checked next */
    bool once;          /* a duplicate key in one object is an error */
    bool replaces;      /* U+FFFD takes the place of lone surrogates */
    bool has_surrogate; /* a lone surrogate was read */
    struct json twice;  /* a duplicate key; JSON_NULL: no key was read twice */
    struct json_trace *trace; /* trace that is recorded, or NULL */
    unsigned followed;        /* depth of the followed list while it is read, else 0 */
    size_t uncounted; /* used bytes of the arena that do not belong to values of this text */
    struct err *e;
};

/* Returns the offset of `at` in the whole text. */
static inline size_t json_place(const struct json_reader *r, const char *at)
{
    return r->before + (size_t)(at - r->start);
}

/* Fails with ERR_INVALID, which says what is wrong with the byte at `at`. Returns -1. */
int json_fail(struct json_reader *r, const char *at, const char *what);

/* Fails because the next byte is unexpected, or the text ends. Returns -1. */
int json_fail_here(struct json_reader *r);

/* Returns the bytes of the arena that decoding needs for a text of this length. */
size_t json_decoding_bytes(size_t bytes);

/* Reads a string that begins at `start` and has its first backslash at r->at. In json_escape.c. */
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
