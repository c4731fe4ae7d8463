/* The bytes of records: varints, fixed 64-bit words, texts with their length + 1 (0: absent),
 * arrays of ids and floats as in memory. A read never reports an error at once: an incomplete
 * record sets r->bad, further reads return zeros, and the record is refused at the end. */

#include "worker/session/record/record.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/text/tokens/span.h"

enum { U_BYTES = 10 }; /* longest number in bytes */

/* Writes 7 bits a byte, low bits first; the top bit says that more bytes follow. Returns the number
 * of bytes. */
static size_t write_u(char at[U_BYTES], uint64_t v)
{
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        at[n++] = (char)(v | 0x80);
    at[n++] = (char)v;
    return n;
}

void record_put_u(struct buf *b, uint64_t v)
{
    char at[U_BYTES];

    if (v < 0x80)
        buf_add_c(b, (char)v);
    else
        buf_add(b, at, write_u(at, v));
}

void record_put_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof(v)); /* little-endian hosts only, like the whole program */
}

void record_put_str(struct buf *b, struct str s)
{
    record_put_u(b, s.p ? s.len + 1 : 0);
    if (s.p)
        buf_add_str(b, s);
}

/* Reserves one byte for the length, which is enough for most texts. */
size_t record_open_str(struct buf *b)
{
    buf_add_c(b, 0);
    return b->len;
}

void record_close_str(struct buf *b, size_t from)
{
    size_t len = b->len - from, n;
    char length[U_BYTES];

    n = write_u(length, len + 1);
    (void)buf_reserve(b, n - 1);
    memmove(b->p + from + n - 1, b->p + from, len);
    memcpy(b->p + from - 1, length, n);
    b->len += n - 1;
}

void record_put_json(struct buf *b, const struct json *v)
{
    size_t from;

    if (!v) {
        record_put_str(b, (struct str){0});
        return;
    }
    from = record_open_str(b);
    json_write(b, v);
    record_close_str(b, from);
}

void record_put_ids(struct buf *b, struct token_span ids)
{
    record_put_u(b, ids.n);
    buf_add(b, ids.at, ids.n * sizeof(*ids.at));
}

void record_put_floats(struct buf *b, const float *v, size_t n)
{
    buf_add(b, v, n * sizeof(*v));
}

/* Returns NULL and sets `bad` if there are not so many bytes. */
static const char *read_bytes_of(struct record_in *r, uint64_t n)
{
    const char *p = r->p;

    if (r->bad || n > (uint64_t)(r->end - r->p)) {
        r->bad = true;
        return NULL;
    }
    r->p += n;
    return p;
}

/* At most 10 bytes; most numbers have one. */
uint64_t record_u(struct record_in *r)
{
    uint64_t v = 0;

    if (!r->bad && r->p < r->end && (unsigned char)*r->p < 0x80)
        return (unsigned char)*r->p++;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const char *p = read_bytes_of(r, 1);

        if (!p)
            return 0;
        v |= (uint64_t)((unsigned char)*p & 0x7f) << shift;
        if (!((unsigned char)*p & 0x80))
            return v;
    }
    r->bad = true;
    return 0;
}

/* A larger number sets `bad`. */
uint32_t record_u32(struct record_in *r)
{
    uint64_t v = record_u(r);

    if (v > UINT32_MAX) {
        r->bad = true;
        return 0;
    }
    return (uint32_t)v;
}

uint64_t record_u64(struct record_in *r)
{
    const char *p = read_bytes_of(r, 8);
    uint64_t v = 0;

    if (p)
        memcpy(&v, p, sizeof(v));
    return v;
}

/* The text points into the record. p is NULL for an absent text. */
struct str record_str(struct record_in *r)
{
    uint64_t n = record_u(r);
    const char *p;

    if (n == 0)
        return (struct str){0};
    p = read_bytes_of(r, n - 1);
    return p ? str_of(p, n - 1) : (struct str){0};
}

/* The ids point into the record and may be unaligned. */
const char *record_ids(struct record_in *r, uint32_t *ret_n)
{
    uint32_t n = record_u32(r);
    const char *p = read_bytes_of(r, (uint64_t)n * sizeof(int32_t));

    *ret_n = p ? n : 0;
    return p;
}

const char *record_floats(struct record_in *r, size_t n)
{
    return read_bytes_of(r, (uint64_t)n * sizeof(float));
}

bool record_read_head(struct record_in *r, struct record_head *ret)
{
    ret->type = record_u(r);
    ret->version = record_u(r);
    ret->id = record_str(r);
    ret->at_ms = record_u64(r);
    return !r->bad;
}

void record_put_head(struct buf *b, const struct record_head *h)
{
    record_put_u(b, h->type);
    record_put_u(b, h->version);
    record_put_str(b, h->id);
    record_put_u64(b, h->at_ms);
}
