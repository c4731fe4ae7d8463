/*
 * struct unigram: the model of SentencePiece's unigram tokenizers. Each piece has a score. Of all
 * ways to cut a word into pieces, the one with the greatest sum is used. The algorithm is Viterbi,
 * forward, like in the reference library: sums in double precision, and a later way wins only if it
 * is greater. A character that is not a piece scores ten less than the lowest score. Adjacent
 * characters of that kind are one unknown token, or with byte_fallback the tokens of their bytes.
 * Immutable after loading. The caller has a struct unigram_scratch for each process or thread.
 */
#ifndef RG_TOKENS_UNIGRAM_H
#define RG_TOKENS_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/span.h"

/* largest text of all pieces, each byte of which may be a node */
enum { UNIGRAM_BYTES_MAX = 16 << 20 };

struct budget;
struct unigram_node;
struct vocab;

struct unigram {
    const struct vocab *vocab;
    double *scores; /* by id */
    double unk_score;
    int32_t unk; /* -1: the model has none */
    bool byte_fallback;
    bool has_bytes;             /* every byte has a token "<0xNN>" */
    int32_t bytes[256];         /* -1: absent */
    struct unigram_node *nodes; /* a trie of the pieces; a node's children are contiguous */
    unsigned char *labels;      /* byte that leads to each node */
    size_t n_nodes;
};

struct unigram_best;

struct unigram_scratch {
    struct budget *budget;   /* limits of the present work */
    struct unigram_best *at; /* by end of a way, in bytes */
    size_t cap;
    struct token_vec ends; /* ends of the tokens, the last one first */
};

/* Makes a model over a sealed vocabulary whose ids are 0..n-1 (borrowed). Takes ownership of scores
 * (n of them, from malloc). unk: -1 for none. */
void unigram_init(struct unigram *u, const struct vocab *vocab, double *scores, int32_t unk);
void unigram_done(struct unigram *u);

/* Appends the ids of one word (valid UTF-8). Returns -1 if an unknown character needs an unk_id
 * that the model lacks, or if the budget of s is exhausted. */
int unigram_encode(const struct unigram *u, struct unigram_scratch *s, struct str word,
                   struct token_vec *out, struct err *e);

void unigram_scratch_done(struct unigram_scratch *s);

#endif
