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
 * A record is whole or it is nothing: the first one whose length or CRC does not fit ends the
 * segment (a torn tail when nothing follows, damage when something does).
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

struct record {
    struct str id, payload;
    size_t size; /* of the whole record in the file */
};

void segment_head(uint32_t number, unsigned char ret[SEGMENT_HEAD]);

/* -1 when the bytes do not begin a segment of that number. */
int segment_check_head(struct str bytes, uint32_t number);

/* The record's first RECORD_HEAD bytes. id is at most 255 bytes, the whole below RECORD_MAX. */
void segment_record_head(struct str id, struct str payload, unsigned char ret[RECORD_HEAD]);

/* The record at the start of `in`: 1 and *ret, 0 at the end (in is empty), -1 torn or damaged. */
int segment_record_next(struct str in, struct record *ret);

#endif
