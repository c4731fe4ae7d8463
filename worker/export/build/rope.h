/*
 * struct rope: the output of a trajectory's writer: texts, and arrays that still must be converted
 * to bytes, in order. So a long trajectory is sent in steps, and its arrays are converted directly
 * into the answer. Arrays are borrowed until they have been sent.
 */
#ifndef RG_EXPORT_ROPE_H
#define RG_EXPORT_ROPE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"

enum rope_piece_kind {
    PIECE_RAW, /* bytes as they are */
    /* items of a JSON array, without brackets */
    PIECE_JSON_I32,
    PIECE_JSON_I64,
    PIECE_JSON_F32,
    PIECE_JSON_BITS,  /* uint8: 0 or 1 */
    PIECE_JSON_BOOLS, /* uint8: false or true */
    PIECE_BASE64,     /* n: bytes */
    /* p is a struct rope_source, n its bytes */
    PIECE_SOURCE,
    PIECE_SOURCE_BASE64,
    /* smaller elements as 64-bit little-endian ones */
    PIECE_WIDE_I32,
    PIECE_WIDE_U8,
    PIECE_WIDE_F32, /* floats as doubles */
    /* bytes as 32-bit elements */
    PIECE_WORDS_U8,
    PIECE_WORDS_I64, /* low halves of 64-bit elements */
    /* pieces without an array */
    PIECE_ZEROS,      /* n bytes */
    PIECE_MINUS_ONES, /* n bytes with all bits set: integers of -1 */
    PIECE_ONES_U8,    /* n times 1 */
    PIECE_ONES_I64,   /* n times 1 */
    PIECE_COUNT_I64,  /* 0, 1, ... n - 1 */
    PIECE_PACK_I64    /* msgpack's integers, shortest form */
};

/* Bytes that are elsewhere until they are sent. fetch appends the next n of them and never fails.
 * After the last byte it begins again from the first. */
struct rope_source {
    void (*fetch)(struct rope_source *s, size_t n, struct buf *out);
};

struct rope_piece {
    enum rope_piece_kind kind;
    const void *p;
    size_t n;    /* number of elements */
    size_t text; /* end of the text before this array */
};

struct rope {
    struct buf text;
    struct rope_piece *at;
    size_t n, cap;
    size_t piece, done, text_done; /* progress of sending */
};

/* Adds an array after the text that was appended to r->text so far. */
void rope_add(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n);

/* Adds the numbers as JSON, with brackets. */
void rope_json(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n);

static inline bool rope_empty(const struct rope *r)
{
    return r->piece == r->n && r->text_done == r->text.len;
}

/* Appends about `budget` bytes to `out`. An emptied rope is ready for the next trajectory. */
void rope_drain(struct rope *r, struct buf *out, size_t budget);

void rope_done(struct rope *r);

#endif
