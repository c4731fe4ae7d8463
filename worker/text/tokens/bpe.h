/*
 * struct bpe: the byte-pair-encoding model. A word becomes symbols (bytes of a byte-level
 * vocabulary, else characters). Then the pair with the lowest rank is merged, leftmost first, until
 * no pair has a rank. This is what the reference library's merge loop does.
 *   - Vocabularies whose merges come in order (all that were trained): the same tokens from left to
 *     right, in linear time (longest.h).
 *   - Others, short words: a linear scan for the lowest rank. Long words: a linked list and a heap,
 *     so 100,000 characters without a break stay O(n log n).
 *
 * Immutable after loading. The caller has a struct bpe_scratch for each process or thread.
 */
#ifndef RG_TOKENS_BPE_H
#define RG_TOKENS_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/pair_table.h"

struct budget;
struct longest;
struct token_vec;
struct vocab;

enum { BPE_MERGES_MAX = PAIR_VALUE_MAX, BPE_UNK_NONE = -1, BPE_UNK_ABSENT = -2 };

struct bpe {
    const struct vocab *vocab;
    struct pair_table ranks; /* ranks of the merges */
    int32_t *merged;         /* resulting ids, by rank */
    size_t merge_count;
    bool byte_level; /* words are raw bytes, and pieces are in the byte-level alphabet */
    bool byte_fallback;
    bool fuse_unk;
    bool ignore_merges;
    int32_t unk;             /* id or BPE_UNK_ */
    int32_t bytes[256];      /* byte_level: a byte's id; else that of "<0xNN>"; -1 if absent */
    struct str prefix;       /* continuing_subword_prefix, or empty; borrowed */
    struct str suffix;       /* end_of_word_suffix, or empty; borrowed */
    bool splits_at_space;    /* no merge joins a character with a U+2581 after it */
    struct longest *longest; /* owned; set by bpe_seal */
    size_t quick_len; /* words of up to this many bytes are encoded as fast as by a cache look-up */
};

/* Symbols that are being merged: a linked list, and a queue of its pairs. */
struct bpe_queue {
    int32_t *id;
    uint32_t *rank; /* rank of the pair that begins at each symbol */
    int32_t *next, *prev;
    uint32_t *span; /* number of symbols in each token */
    uint64_t *heap; /* 3 * cap elements; the other arrays have cap */
    size_t cap;
};

struct bpe_scratch {
    struct budget *budget; /* limits of the present work */
    int32_t *id; /* symbols of the word, then its tokens; this and the next two have cap elements */
    int32_t *token; /* final tokens of a long word */
    uint32_t *span;
    size_t cap;
    struct bpe_queue queue;
    struct buf text; /* a piece that is looked up */
};

/* Makes an empty model over a sealed vocabulary (borrowed) with space for merges. */
void bpe_init(struct bpe *b, const struct vocab *vocab, size_t merges);
void bpe_done(struct bpe *b);

struct bpe_merge {
    struct str left, right;
};

/* Adds the next merges, in order of rank. A pair given twice gets the later rank. Fails if a piece
 * or the joined piece is not in the vocabulary. */
int bpe_add_merges(struct bpe *b, const struct bpe_merge *merges, size_t n, struct err *e);

/* Computes the tables that depend on flags. Call it once, after flags and merges are set. */
void bpe_seal(struct bpe *b);

/* Returns the id if a word of 1..quick_len bytes is one token; -1: it is several. */
int32_t bpe_quick(const struct bpe *b, struct str word);

/* Appends the ids of one word. Returns -1 if an unknown character needs an unk_token that the
 * vocabulary lacks, or if the budget of s is exhausted. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, struct str word, struct token_vec *out,
               struct err *e);

void bpe_scratch_done(struct bpe_scratch *s);

#endif
