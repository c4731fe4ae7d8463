/*
 * Texts of all pieces are in one buffer; a piece has the end of the text before it. Draining
 * continues where it stopped, text and array in turn, and stops within an array when the budget is
 * used up: elements_of computes how many elements make that number of bytes. Base64 is cut only
 * after multiples of three, and JSON's items get the comma between two cuts.
 *
 * Arrays are converted directly into the answer's buffer. So a trajectory of millions of tokens
 * exists once as numbers and never as a text of its own.
 */
#include "worker/export/build/rope.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "worker/export/build/numbers.h"

void rope_add(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n)
{
    if (n > 0)
        *vec_push(r) = (struct rope_piece){kind, p, n, r->text.len};
}

void rope_json(struct rope *r, enum rope_piece_kind kind, const void *p, size_t n)
{
    buf_add_c(&r->text, '[');
    rope_add(r, kind, p, n);
    buf_add_c(&r->text, ']');
}

/* Returns how many elements make about this number of bytes; for BASE64 a multiple of three. */
static size_t elements_of(enum rope_piece_kind kind, size_t bytes)
{
    switch (kind) {
    case PIECE_RAW:
    case PIECE_ZEROS:
    case PIECE_MINUS_ONES:
    case PIECE_ONES_U8:
    case PIECE_SOURCE:
        return bytes;
    case PIECE_BASE64:
    case PIECE_SOURCE_BASE64:
        return bytes / 4 * 3 + 3;
    default:
        return bytes / 8 + 1;
    }
}

static void widen_elements(struct buf *out, const struct rope_piece *x, size_t from, size_t n)
{
    char *p = buf_reserve(out, n * 8);
    const int32_t *ids = x->p;
    const uint8_t *bits = x->p;
    const float *floats = x->p;

    for (size_t i = from; i < from + n; i++, p += 8) {
        int64_t v = 1;
        double d;

        if (x->kind == PIECE_WIDE_F32) {
            d = (double)floats[i];
            memcpy(p, &d, sizeof(d));
            continue;
        }
        if (x->kind == PIECE_WIDE_I32)
            v = ids[i];
        else if (x->kind == PIECE_WIDE_U8)
            v = bits[i];
        else if (x->kind == PIECE_COUNT_I64)
            v = (int64_t)i;
        memcpy(p, &v, sizeof(v));
    }
    out->len += n * 8;
}

static void put_words(struct buf *out, const struct rope_piece *x, size_t from, size_t n)
{
    char *p = buf_reserve(out, n * 4);
    const uint8_t *bits = x->p;
    const int64_t *longs = x->p;

    for (size_t i = from; i < from + n; i++, p += 4) {
        int32_t v = x->kind == PIECE_WORDS_U8 ? (int32_t)bits[i] : (int32_t)longs[i];

        memcpy(p, &v, sizeof(v));
    }
    out->len += n * 4;
}

static void fill_zeros(struct buf *out, int byte, size_t n)
{
    memset(buf_reserve(out, n), byte, n);
    out->len += n;
}

/* Writes integers in their shortest form: most are -1 or a small step. */
static void pack_integers(struct buf *out, const int64_t *v, size_t n)
{
    char *p = buf_reserve(out, n * 9), *start = p;

    for (size_t i = 0; i < n; i++) {
        unsigned bytes = v[i] >= INT8_MIN && v[i] <= INT8_MAX     ? 1
                         : v[i] >= INT16_MIN && v[i] <= INT16_MAX ? 2
                         : v[i] >= INT32_MIN && v[i] <= INT32_MAX ? 4
                                                                  : 8;

        if (bytes > 1 || v[i] < -32)
            *p++ = (char)(0xd0 + __builtin_ctz(bytes));
        for (unsigned k = bytes; k-- > 0;)
            *p++ = (char)((uint64_t)v[i] >> (8 * k));
    }
    out->len += (size_t)(p - start);
}

static void fetch_source(struct buf *out, const struct rope_piece *x, size_t n)
{
    struct rope_source *s = (struct rope_source *)(uintptr_t)x->p;
    struct buf bytes = {0};

    if (x->kind == PIECE_SOURCE) {
        s->fetch(s, n, out);
        return;
    }
    s->fetch(s, n, &bytes);
    base64_append(out, bytes.p, n);
    buf_done(&bytes);
}

static void emit_elements(struct buf *out, const struct rope_piece *x, size_t from, size_t n)
{
    const void *p = x->p;

    switch (x->kind) {
    case PIECE_RAW:
        buf_add(out, (const char *)p + from, n);
        return;
    case PIECE_ZEROS:
        fill_zeros(out, 0, n);
        return;
    case PIECE_MINUS_ONES:
        fill_zeros(out, 0xff, n);
        return;
    case PIECE_ONES_U8:
        fill_zeros(out, 1, n);
        return;
    case PIECE_WORDS_U8:
    case PIECE_WORDS_I64:
        put_words(out, x, from, n);
        return;
    case PIECE_BASE64:
        base64_append(out, (const char *)p + from, n);
        return;
    case PIECE_SOURCE:
    case PIECE_SOURCE_BASE64:
        fetch_source(out, x, n);
        return;
    case PIECE_PACK_I64:
        pack_integers(out, (const int64_t *)p + from, n);
        return;
    case PIECE_WIDE_I32:
    case PIECE_WIDE_U8:
    case PIECE_WIDE_F32:
    case PIECE_ONES_I64:
    case PIECE_COUNT_I64:
        widen_elements(out, x, from, n);
        return;
    default:
        break;
    }
    if (from > 0)
        buf_add_c(out, ',');
    if (x->kind == PIECE_JSON_I32)
        numbers_i32(out, (const int32_t *)p + from, n);
    else if (x->kind == PIECE_JSON_I64)
        numbers_i64(out, (const int64_t *)p + from, n);
    else if (x->kind == PIECE_JSON_F32)
        numbers_f32(out, (const float *)p + from, n);
    else if (x->kind == PIECE_JSON_BITS)
        numbers_bits(out, (const uint8_t *)p + from, n);
    else
        numbers_bools(out, (const uint8_t *)p + from, n);
}

void rope_drain(struct rope *r, struct buf *out, size_t budget)
{
    size_t end = out->len + budget;

    while (!rope_empty(r) && out->len < end) {
        const struct rope_piece *x = r->piece < r->n ? &r->at[r->piece] : NULL;
        size_t text = x ? x->text : r->text.len;
        size_t n = MIN_OF(text - r->text_done, end - out->len);

        if (n > 0) {
            buf_add(out, r->text.p + r->text_done, n);
            r->text_done += n;
            continue;
        }
        CHECK(x); /* the piece is not empty, and the text before it was sent */
        n = MIN_OF(x->n - r->done, elements_of(x->kind, end - out->len));
        emit_elements(out, x, r->done, n);
        r->done += n;
        if (r->done == x->n) {
            r->done = 0;
            r->piece++;
        }
    }
    if (rope_empty(r)) {
        buf_clear(&r->text);
        r->n = r->piece = r->text_done = 0;
    }
}

void rope_done(struct rope *r)
{
    buf_done(&r->text);
    vec_done(r);
}
