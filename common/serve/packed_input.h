/*
 * struct packed_input: a long request that takes less memory while it arrives and waits. Most of
 * such a request is pictures in base64. A block of pure base64 is decoded in place, and its unused
 * pages are freed. Opened again, it is the same text to the byte. Addresses and lengths do not
 * change, and the meaning of the text does not matter. The ends of a request are never packed,
 * since they are read first.
 *
 * One thread at a time: the loop, until it has lent the request to another (exchange_hold).
 */
#ifndef RG_SERVE_PACKED_INPUT_H
#define RG_SERVE_PACKED_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum {
    PACKED_BLOCK = 64 << 10, /* whole pages, and the pages of its fourth quarter, too */
    PACKED_LEAST = 8 << 20,  /* shorter requests stay as they are */
    PACKED_ENDS = (2 << 20) + (64 << 10), /* bytes at each end of a request that are never packed */
};

/* A zeroed one has no blocks. */
struct packed_input {
    char *base;   /* start of the request; NULL: there are no blocks */
    char *blocks; /* the first, at the start of a page */
    size_t n_blocks;
    size_t seen;     /* blocks that were examined */
    uint8_t *packed; /* a byte a block: 1 while it is packed; ours */
};

/* Starts packing a request of `whole_bytes` at `base`, which does not move. Ends the packing of an
 * earlier request. */
void packed_input_begin(struct packed_input *p, char *base, size_t whole_bytes);

/* Packs the blocks that are whole now: the request has arrived up to `end`. */
void packed_input_add(struct packed_input *p, const char *end);

/* Reports whether the newest examined block is packed, so that its pages are freed. */
bool packed_input_packs(const struct packed_input *p);

/* Makes the part of the request readable: opens the blocks that it touches. */
void packed_input_open(const struct packed_input *p, struct str part);

void packed_input_done(struct packed_input *p);

#endif
