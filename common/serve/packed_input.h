/*
 * struct packed_input: a long request that uses less memory while it arrives and waits. Most of
 * such a request is pictures in base64. A block of pure base64 is decoded in place, and the pages
 * that become free are returned to the system. A block that is opened again has its former text, to
 * the byte. Addresses and lengths do not change, and the meaning of the text does not matter. The
 * ends of a request are never packed, because they are read first.
 *
 * One thread at a time uses it: the loop, until it has lent the request to a helper
 * (exchange_hold).
 */
#ifndef RG_SERVE_PACKED_INPUT_H
#define RG_SERVE_PACKED_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum {
    PACKED_BLOCK = 64 << 10,              /* whole pages; the fourth quarter, too, is whole pages */
    PACKED_LEAST = 8 << 20,               /* shorter requests are not packed */
    PACKED_ENDS = (2 << 20) + (64 << 10), /* bytes at each end of a request that are never packed */
};

/* A zeroed struct has no blocks. */
struct packed_input {
    char *base;   /* start of the request; NULL: there are no blocks */
    char *blocks; /* the first block; begins at the start of a page */
    size_t n_blocks;
    size_t seen;     /* number of examined blocks */
    uint8_t *packed; /* one byte for each block: 1 while it is packed; owned */
};

/* Starts packing a request of `whole_bytes` at `base`, which must not move. Ends the packing of an
 * earlier request. */
void packed_input_begin(struct packed_input *p, char *base, size_t whole_bytes);

/* Packs the blocks that are complete now: the request has arrived up to `end`. */
void packed_input_add(struct packed_input *p, const char *end);

/* Reports whether the newest examined block is packed, so that its pages are free. */
bool packed_input_packs(const struct packed_input *p);

/* Makes a range of the request readable by opening the blocks that it touches. */
void packed_input_open(const struct packed_input *p, struct str part);

void packed_input_done(struct packed_input *p);

#endif
