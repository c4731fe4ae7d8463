/*
 * struct rope: what a trajectory's writer leaves behind: texts, and arrays that are still to become
 * bytes, in order. A long trajectory goes out a part at a time that way, and its arrays are
 * converted straight into the answer. Arrays are borrowed until they have been drained.
 */
#ifndef RG_EXPORT_ROPE_H
#define RG_EXPORT_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

enum rope_piece_kind {
    PIECE_RAW, /* bytes as they are */
    /* JSON's items, without brackets */
    PIECE_JSON_I32,
    PIECE_JSON_I64,
    PIECE_JSON_F32,
    PIECE_JSON_BITS,  /* uint8: 0 or 1 */
    PIECE_JSON_BOOLS, /* uint8: false or true */
    PIECE_BASE64,     /* n: bytes */
    /* p is a struct rope_source, n its bytes */
    PIECE_SOURCE,
    PIECE_SOURCE_BASE64,
    /* 64-bit little-endian elements out of smaller ones */
    PIECE_WIDE_I32,
    PIECE_WIDE_U8,
    PIECE_WIDE_F32, /* to doubles */
    /* 32-bit ones, likewise */
    PIECE_WORDS_U8,
    PIECE_WORDS_I64, /* their low halves */
    /* without an array */
    PIECE_ZEROS,      /* n bytes */
    PIECE_MINUS_ONES, /* n bytes of all bits: integers of -1 */
    PIECE_ONES_U8,    /* n times 1 */
    PIECE_ONES_I64,   /* n times 1 */
    PIECE_COUNT_I64,  /* 0, 1, ... n - 1 */
    PIECE_PACK_I64    /* msgpack's integers, shortest form */
};

/* Bytes that lie elsewhere until they go out. fetch appends the next n of them, whatever happens;
 * behind the last it is ready to begin anew. */
struct rope_source {
    void (*fetch)(struct rope_source *s, size_t n, struct buf *out);
};

struct rope_piece {
    enum rope_piece_kind kind;
    const void *p;
    size_t n;    /* elements */
    size_t text; /* where the text before it ends */
};

struct rope {
    struct buf text;
    struct rope_piece *at;
    size_t n, cap;
    size_t piece, done, text_done; /* drained so far */
};

/* Text is appended to r->text; this puts an array behind it. */
void rope_add(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n);

/* Adds the numbers as JSON, with brackets. */
void rope_json(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n);

static inline bool rope_empty(const struct rope *r)
{
    return r->piece == r->n && r->text_done == r->text.len;
}

/* Appends about `budget` bytes more; an emptied rope is ready for the next trajectory. */
void rope_drain(struct rope *r, struct buf *out, size_t budget);

void rope_done(struct rope *r);

#endif
