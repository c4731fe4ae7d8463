/*
 * One segment file of a journal and its records, as bytes. Pure.
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
 * A record is whole, or it does not exist. Other bytes are a torn tail if no whole record follows
 * them. Otherwise they are damage, and reading continues at the next whole record. That record's id
 * must have letters, digits, '.', '-' and '~' only, as all ids do.
 */
#ifndef RG_JOURNAL_SEGMENT_H
#define RG_JOURNAL_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum {
    SEGMENT_HEAD = 8,
    RECORD_HEAD = 9, /* includes the id's length */
    RECORD_MAX = 1 << 30,
};

struct journal_record {
    struct str id, payload;
    size_t size; /* size of the whole record in the file, in bytes */
};

void segment_head(uint32_t number, unsigned char ret[SEGMENT_HEAD]);

/* What a segment's first bytes are. */
enum segment_kind {
    SEGMENT_OURS,
    SEGMENT_TORN,    /* too short for a head */
    SEGMENT_DAMAGED, /* not a head of that number, but records may follow */
    SEGMENT_OTHER,   /* a different version of this format */
};

/* Writes the record's first RECORD_HEAD bytes. The id has at most 255 bytes, the record less than
 * RECORD_MAX. */
void segment_record_head(struct str id, struct str payload, unsigned char ret[RECORD_HEAD]);

/* Reads the record at the start of `in`. id and payload point into `in`. Returns 0, or -1 if `in`
 * does not begin with a whole record. */
int segment_record(struct str in, struct journal_record *ret);

enum { SEGMENT_SUMS = 4096 };

/* Reads a segment's records in order. */
struct segment_reader {
    struct str bytes;            /* the whole file */
    size_t at;                   /* offset after the last whole record */
    size_t damaged;              /* number of damaged bytes skipped so far */
    size_t n_sums;               /* 0: nothing was searched yet */
    uint32_t sums[SEGMENT_SUMS]; /* checksums of the first 0, 1, 2, ... equal parts of the file */
};

/* Starts reading the bytes of a segment, which are borrowed. Fails with ERR_UNSUPPORTED for a
 * different version. A damaged head is skipped, and records are read nevertheless. */
int segment_reader_init(struct segment_reader *r, struct str bytes, uint32_t number, struct err *e);

/* Reads the next record, which begins at r->at - ret->size. Returns 1. Returns 0 if no whole record
 * remains; bytes after r->at are torn then. */
int segment_reader_next(struct segment_reader *r, struct journal_record *ret);

#endif
