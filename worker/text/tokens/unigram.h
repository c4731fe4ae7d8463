/*
 * struct unigram: the model of SentencePiece's unigram tokenizers. Each piece has a score. Of all
 * ways to cut a word into pieces the one with the greatest sum is taken. The algorithm is Viterbi,
 * forward, like in the reference library: sums in double precision, and a later way wins only if it
 * is greater. A character that is no piece costs the least score less ten, and neighbours of that
 * kind are one unknown token, or their bytes' tokens with byte_fallback. Immutable once made;
 * struct unigram_scratch is the caller's, one per process or thread.
 */
#ifndef RG_TOKENS_UNIGRAM_H
#define RG_TOKENS_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/span.h"

enum { UNIGRAM_BYTES_MAX = 16 << 20 }; /* text of all pieces: each byte may be a node */

struct budget;
struct unigram_node;
struct vocab;

struct unigram {
    const struct vocab *vocab;
    double *scores; /* by id */
    double unk_score;
    int32_t unk; /* -1: none */
    bool byte_fallback;
    bool has_bytes;             /* every byte has a token "<0xNN>" */
    int32_t bytes[256];         /* or -1 */
    struct unigram_node *nodes; /* a trie of the pieces; a node's children lie side by side */
    unsigned char *labels;      /* byte that leads to each node */
    size_t n_nodes;
};

struct unigram_best;

struct unigram_scratch {
    struct budget *budget;   /* limits of the work under way */
    struct unigram_best *at; /* by the byte where a way ends */
    size_t cap;
    struct token_vec ends; /* ends of the tokens, last first */
};

/* Over a sealed vocabulary whose ids are 0..n-1 (borrowed); takes scores (n of them, from malloc).
 * unk: -1 for none. */
void unigram_init(struct unigram *u, const struct vocab *vocab, double *scores, int32_t unk);
void unigram_done(struct unigram *u);

/* Appends the ids of one word (valid UTF-8). -1 when an unknown character needs an unk_id that the
 * model lacks, or the budget of s has run out. */
int unigram_encode(const struct unigram *u, struct unigram_scratch *s, struct str word,
                   struct token_vec *out, struct err *e);

void unigram_scratch_done(struct unigram_scratch *s);

#endif
