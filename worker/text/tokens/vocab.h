/*
 * struct vocab: the model's vocabulary: piece -> id and id -> piece. Filled once while loading,
 * then read-only. Flat arrays: all pieces in one pool, and an open-addressing table of entry
 * numbers with a fragment of the hash, so that looking up costs one or two cache misses.
 */
#ifndef RG_TOKENS_VOCAB_H
#define RG_TOKENS_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

/* largest text of all pieces; the largest known has some 4 MB */
enum { VOCAB_BYTES_MAX = 64 << 20 };

enum { VOCAB_ID_MAX = (1 << 21) - 2 }; /* largest id: the merge table packs ids into 21 bits */

struct vocab_entry {
    uint32_t at; /* offset in the pool */
    uint32_t len;
    int32_t id;
};

struct vocab_slot {
    uint32_t hash;
    uint32_t entry; /* number of the entry + 1; 0: free */
};

struct vocab {
    struct buf pool;
    struct vocab_entry *entries;
    size_t n, cap;
    struct vocab_slot *slots;
    size_t mask;
    uint32_t *by_id; /* number of the entry + 1; 0: the id does not exist */
    size_t id_count; /* highest id + 1 */
    size_t probes;   /* number of occupied slots that vocab_add has skipped */
};

/* Reserves memory for n pieces with `bytes` bytes in all. */
void vocab_init(struct vocab *v, size_t n, size_t bytes);
void vocab_done(struct vocab *v);

/* Adds a piece. An existing piece gets the new id. Returns -1 if the id is out of range. */
int vocab_add(struct vocab *v, struct str piece, int64_t id, struct err *e);

/* Builds the map from ids to pieces. Call it once after the last vocab_add. Returns -1 if two
 * pieces have one id. */
int vocab_seal(struct vocab *v, struct err *e);

/* Returns the id of the piece, or -1. */
int32_t vocab_id(const struct vocab *v, struct str piece);

/* Looks up in three steps, so that the cache misses of many pieces overlap: vocab_hash hashes and
 * prefetches the slot, vocab_prefetch the entry that the slot names, vocab_id_at compares. */
uint32_t vocab_hash(const struct vocab *v, struct str piece);
void vocab_prefetch(const struct vocab *v, uint32_t hash);
int32_t vocab_id_at(const struct vocab *v, struct str piece, uint32_t hash);

/* Returns the piece; absent if the id is unknown. */
struct str vocab_piece(const struct vocab *v, int32_t id);

#endif
