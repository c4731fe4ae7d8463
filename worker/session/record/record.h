/*
 * Writes and reads the bytes of session records: little-endian fixed integers, LEB128 lengths, runs
 * of ids and floats. The reader never reads past the end: after the first bad field `bad` stays
 * set, and every further read returns zero or empty, so that a decoder needs only one check, at its
 * end.
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
void record_put_str(struct buf *b, struct str s); /* an absent text stays absent */

/* Appends a value's JSON text. NULL becomes an absent text. */
void record_put_json(struct buf *b, const struct json *v);

/* Write a text directly into the record: record_open_str returns where the text begins; the caller
 * appends its bytes to b; record_close_str inserts their number before them. The record is the same
 * as with record_put_str. */
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

/* The fields with which every record begins. */
struct record_head {
    uint64_t type, version;
    struct str id; /* id of its session; borrowed from the record */
    uint64_t at_ms;
};

/* Reads the head; r is after the head then. Returns false if the record is incomplete. */
bool record_read_head(struct record_in *r, struct record_head *ret);
void record_put_head(struct buf *b, const struct record_head *h);

uint64_t record_u(struct record_in *r);
uint32_t record_u32(struct record_in *r); /* LEB128; bad if larger than 32 bits */
uint64_t record_u64(struct record_in *r);
struct str record_str(struct record_in *r); /* borrowed from the record */

/* Return runs of bytes whose count was read before. The bytes are borrowed and may be unaligned.
 * Return NULL if fewer are left. */
const char *record_ids(struct record_in *r, uint32_t *ret_n);
const char *record_floats(struct record_in *r, size_t n);

#endif
