/*
 * Bytes of session records: little-endian fixed integers, LEB128 lengths, runs of ids and floats.
 * The reader never runs past its end: after the first bad field `bad` stays set and every further
 * read answers zero or empty, so a decoder checks once, at its end.
 */
#ifndef RG_SESSION_RECORD_H
#define RG_SESSION_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

struct json;
struct token_span;

void record_put_u(struct buf *b, uint64_t v); /* LEB128 */
void record_put_u64(struct buf *b, uint64_t v);
void record_put_str(struct buf *b, struct str s); /* absent stays absent */

/* Appends a value's JSON text; NULL becomes an absent one. */
void record_put_json(struct buf *b, const struct json *v);

/* Write a text right into the record: record_open_str returns where it begins, then its bytes are
 * appended to b, then record_close_str puts their number before them. The record is the same as
 * with record_put_str. */
size_t record_open_str(struct buf *b);
void record_close_str(struct buf *b, size_t from);

void record_put_ids(struct buf *b, struct token_span ids);
void record_put_floats(struct buf *b, const float *v, size_t n);

struct record_in {
    const char *p, *end;
    bool bad;
};

static inline struct record_in record_in_of(struct str s)
{
    return (struct record_in){s.p, s.p + s.len, false};
}

/* What every record begins with. */
struct record_head {
    uint64_t type, version;
    struct str id; /* id of its session; borrowed from the record */
    uint64_t at_ms;
};

/* Reads the head; r then stands behind it. Returns false if the record is cut. */
bool record_read_head(struct record_in *r, struct record_head *ret);
void record_put_head(struct buf *b, const struct record_head *h);

uint64_t record_u(struct record_in *r);
uint32_t record_u32(struct record_in *r); /* LEB128 that must fit */
uint64_t record_u64(struct record_in *r);
struct str record_str(struct record_in *r); /* borrowed from the record */

/* Raw runs: their count was read before; the bytes are borrowed and may be unaligned. NULL when
 * fewer are left. */
const char *record_ids(struct record_in *r, uint32_t *ret_n);
const char *record_floats(struct record_in *r, size_t n);

#endif
