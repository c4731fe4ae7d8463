/* Walks over msgpack values by their heads alone: a head gives the number of bytes and of values
 * that follow. Nesting needs no stack. Bytes that end early, or announce more than COUNT_MAX
 * values, are invalid. */

#include "worker/sink/pieces.h"

#include <stdbool.h>
#include <stdint.h>

enum { COUNT_MAX = 1 << 28 };

struct in {
    const unsigned char *p, *end;
    bool bad;
};

/* Reads the next n bytes as a big-endian number. */
static uint64_t read_be(struct in *r, size_t n)
{
    uint64_t v = 0;

    if ((size_t)(r->end - r->p) < n) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        v = v << 8 | *r->p++;
    return v;
}

static void skip_piece_bytes(struct in *r, uint64_t n)
{
    if ((uint64_t)(r->end - r->p) < n)
        r->bad = true;
    else
        r->p += n;
}

/* Content that a head announces: bytes to skip, and the number of values that follow. */
struct head {
    uint64_t bytes, values;
};

/* Reads the rest of a head from 0xc0 to 0xdf, whose length is in the following bytes. */
static struct head wide_head(struct in *r, unsigned b)
{
    static const unsigned char fixed[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17};

    if (b <= 0xc3)
        return (struct head){0, 0}; /* nil, false, true */
    if (b <= 0xc6)
        return (struct head){read_be(r, (size_t)1 << (b - 0xc4)), 0}; /* bin */
    if (b <= 0xc9)
        return (struct head){read_be(r, (size_t)1 << (b - 0xc7)) + 1, 0}; /* ext, with its type */
    if (b <= 0xd8)
        return (struct head){fixed[b - 0xca], 0};
    if (b <= 0xdb)
        return (struct head){read_be(r, (size_t)1 << (b - 0xd9)), 0}; /* str */
    if (b <= 0xdd)
        return (struct head){0, read_be(r, (size_t)2 << (b - 0xdc))}; /* array */
    return (struct head){0, 2 * read_be(r, (size_t)2 << (b - 0xde))}; /* map */
}

/* Reads the head of any value. */
static struct head read_head(struct in *r)
{
    unsigned b = (unsigned)read_be(r, 1);

    if (b < 0x80 || b >= 0xe0)
        return (struct head){0, 0};
    if (b < 0x90)
        return (struct head){0, 2 * (uint64_t)(b & 15)};
    if (b < 0xa0)
        return (struct head){0, b & 15};
    if (b < 0xc0)
        return (struct head){b & 31, 0};
    return wide_head(r, b);
}

/* Skips one value with everything in it. */
static void skip_value(struct in *r)
{
    uint64_t left = 1;

    while (left > 0 && !r->bad) {
        struct head h = read_head(r);

        skip_piece_bytes(r, h.bytes);
        left += h.values - 1;
        if (left > COUNT_MAX)
            r->bad = true;
    }
}

/* Reads the head of a map or an array, and returns its number of members. Other values are
 * invalid. */
static uint64_t open_count(struct in *r, bool map)
{
    const unsigned char *at = r->p;
    struct head h = read_head(r);
    unsigned b = r->bad ? 0 : *at;
    bool is_map = (b & 0xf0) == 0x80 || b == 0xde || b == 0xdf;
    bool is_array = (b & 0xf0) == 0x90 || b == 0xdc || b == 0xdd;

    if ((map && !is_map) || (!map && !is_array) || h.values > COUNT_MAX)
        r->bad = true;
    return r->bad ? 0 : map ? h.values / 2 : h.values;
}

/* Reads a key. Keys that are not strings are invalid. */
static struct str read_key(struct in *r)
{
    const unsigned char *at = r->p;
    struct head h = read_head(r);
    unsigned b = r->bad ? 0 : *at;

    at = r->p;
    skip_piece_bytes(r, h.bytes);
    if ((b & 0xe0) != 0xa0 && (b < 0xd9 || b > 0xdb))
        r->bad = true;
    return r->bad ? str_of(NULL, 0) : str_of((const char *)at, h.bytes);
}

int pieces_find(struct str envelope, struct pieces *ret, struct err *e)
{
    const unsigned char *start = (const unsigned char *)envelope.p;
    struct in r = {start, start + envelope.len, false};
    uint64_t members = open_count(&r, true);
    bool found = false;

    for (uint64_t i = 0; i < members && !r.bad; i++) {
        bool here = str_eq_c(read_key(&r), "trajectories");
        uint64_t n = here ? open_count(&r, false) : 0;

        found = found || here;
        for (uint64_t k = 0; k < n && !r.bad; k++) {
            const unsigned char *from = r.p;

            skip_value(&r);
            if (!r.bad)
                *vec_push(ret) = (struct piece){(size_t)(from - start), (size_t)(r.p - from)};
        }
        if (!here)
            skip_value(&r);
    }
    if (r.bad || !found)
        return err_set(e, ERR_IO, "not a whole export");
    return 0;
}

/* Appends the next value to ret and returns true if it is a string or a whole number. Otherwise
 * skips the value and returns false. */
static bool read_scalar(struct in *r, struct buf *ret)
{
    const unsigned char *at = r->p;
    unsigned b = at < r->end ? *at : 0xc0;
    bool text = (b & 0xe0) == 0xa0 || (b >= 0xd9 && b <= 0xdb);
    struct head h;

    if (b < 0x80 || (b >= 0xcc && b <= 0xcf)) {
        uint64_t n = read_be(r, 1);

        if (b >= 0xcc)
            n = read_be(r, (size_t)1 << (b - 0xcc));
        if (!r->bad)
            buf_printf(ret, "%llu", (unsigned long long)n);
        return !r->bad;
    }
    if (!text) {
        skip_value(r);
        return false;
    }
    h = read_head(r);
    at = r->p;
    skip_piece_bytes(r, h.bytes);
    if (!r->bad)
        buf_add(ret, (const char *)at, h.bytes);
    return !r->bad;
}

bool pieces_note(struct str envelope, const char *key, struct buf *ret)
{
    const unsigned char *start = (const unsigned char *)envelope.p;
    struct in r = {start, start + envelope.len, false};
    uint64_t members = open_count(&r, true);

    for (uint64_t i = 0; i < members && !r.bad; i++) {
        struct str at = read_key(&r);

        if (str_eq_c(at, "trajectories") || str_eq_c(at, "prompt_ids"))
            return false;
        if (str_eq_c(at, key))
            return read_scalar(&r, ret);
        skip_value(&r);
    }
    return false;
}
