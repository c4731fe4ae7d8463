/*
 * struct vocab: the model's vocabulary: piece -> id and id -> piece. Filled once while loading,
 * then read-only. Flat arrays: all pieces in one pool, an open-addressing table of entry numbers
 * with part of the hash, so that looking up costs one or two cache misses.
 */
#ifndef RG_TOKENS_VOCAB_H
#define RG_TOKENS_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

enum { VOCAB_BYTES_MAX = 64 << 20 }; /* text of all pieces; the largest known have some 4 MB */

enum { VOCAB_ID_MAX = (1 << 21) - 2 }; /* the merge table packs ids into 21 bits */

struct vocab_entry {
    uint32_t at; /* into the pool */
    uint32_t len;
    int32_t id;
};

struct vocab_slot {
    uint32_t hash;
    uint32_t entry; /* number + 1; 0: free */
};

struct vocab {
    struct buf pool;
    struct vocab_entry *entries;
    size_t n, cap;
    struct vocab_slot *slots;
    size_t mask;
    uint32_t *by_id; /* entry number + 1; 0: no such id */
    size_t id_count; /* highest id + 1 */
    size_t probes;   /* slots that vocab_add passed by */
};

/* Makes room for n pieces of `bytes` bytes together. */
void vocab_init(struct vocab *v, size_t n, size_t bytes);
void vocab_done(struct vocab *v);

/* Adds a piece; one that is there already gets the new id. -1: the id is out of range. */
int vocab_add(struct vocab *v, struct str piece, int64_t id, struct err *e);

/* Builds the way back from ids; call once after the last vocab_add. -1: two pieces have one id. */
int vocab_seal(struct vocab *v, struct err *e);

/* Returns the id of the piece, or -1. */
int32_t vocab_id(const struct vocab *v, struct str piece);

/* Looking up in three steps, so that the cache misses of many pieces overlap: hash and prefetch
 * the slot; prefetch what the slot names; then vocab_id_at with the hash. */
uint32_t vocab_hash(const struct vocab *v, struct str piece);
void vocab_prefetch(const struct vocab *v, uint32_t hash);
int32_t vocab_id_at(const struct vocab *v, struct str piece, uint32_t hash);

/* Returns the piece; absent if the id is unknown. */
struct str vocab_piece(const struct vocab *v, int32_t id);

#endif
