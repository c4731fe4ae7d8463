/*
 * Hashes of blocks of at most BLOCK_BYTES bytes, to find out whether two blocks of the same length
 * are equal without keeping both.
 *
 * The hash is NH (Black and others, UMAC, 1999): the sum, modulo 2^128, of (m[2i] + k[2i]) *
 * (m[2i+1] + k[2i+1]), where m are the block's words of 64 bits, k random words, and sums of two
 * words modulo 2^64. Two different blocks of one length, chosen without knowing k, have the same
 * hash with a probability of at most 2^-64: choose a word in which they differ; the other words and
 * all of k but its partner's leave at most one value of 2^64 for that one. k is random in each
 * process and no answer depends on it, so nobody can look for such blocks: 10,000 tries a second
 * find one in 29 million years.
 */
#ifndef RG_BASE_BLOCK_HASH_H
#define RG_BASE_BLOCK_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

enum { BLOCK_BYTES = 1024 };

struct block_hash {
    uint64_t low, high;
};

/* Returns the hash of a block of at most BLOCK_BYTES bytes. May be called on any thread. */
struct block_hash block_hash(struct str block);

/* Reports whether the hashes, of blocks of the same length, are equal. */
static inline bool block_hash_equal(struct block_hash a, struct block_hash b)
{
    return a.low == b.low && a.high == b.high;
}

#endif
