/*
 * One segment file of a journal and its records, as bytes. Pure but for segment_* that take an fd.
 *
 *   file    0  "RGJ1"             4 bytes
 *           4  number             u32 little-endian, the number in the file's name
 *           8  records
 *   record  0  body length        u32 little-endian: 1 + id length + payload length
 *           4  CRC-32C            u32 little-endian, over the 4 length bytes and the body
 *           8  id length          u8
 *           9  session id
 *              payload
 *
 * A record is whole or it is nothing. Bytes that do not fit are a torn tail if no whole record
 * follows them. Otherwise they are damage, and reading goes on at the next whole record. Its id
 * must have letters, digits, '.', '-' and '~' only, like all ids.
 */
#ifndef RG_JOURNAL_SEGMENT_H
#define RG_JOURNAL_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum {
    SEGMENT_HEAD = 8,
    RECORD_HEAD = 9, /* with the id's length */
    RECORD_MAX = 1 << 30,
};

struct journal_record {
    struct str id, payload;
    size_t size; /* size of the whole record in the file */
};

void segment_head(uint32_t number, unsigned char ret[SEGMENT_HEAD]);

/* Result of reading a segment's first bytes. */
enum segment_kind {
    SEGMENT_OURS,
    SEGMENT_TORN,    /* too short for a head */
    SEGMENT_DAMAGED, /* no head of that number, but records may follow */
    SEGMENT_OTHER,   /* another version of this format */
};

/* The record's first RECORD_HEAD bytes. id is at most 255 bytes, the whole below RECORD_MAX. */
void segment_record_head(struct str id, struct str payload, unsigned char ret[RECORD_HEAD]);

/* Reads the whole record at the start of the bytes; -1 if there is no whole record. */
int segment_record(struct str in, struct journal_record *ret);

/* Reads a segment's records in order. */
struct segment_reader {
    struct str bytes; /* the whole file */
    size_t at;        /* offset after the last whole record */
    size_t damaged;   /* bytes skipped so far */
};

/* -1 with ERR_UNSUPPORTED for another version. A damaged head costs itself only. */
int segment_reader_init(struct segment_reader *r, struct str bytes, uint32_t number, struct err *e);

/* Reads the next record, which begins at r->at - ret->size: 1; 0: no more, and bytes after r->at
 * are torn. */
int segment_reader_next(struct segment_reader *r, struct journal_record *ret);

#endif
