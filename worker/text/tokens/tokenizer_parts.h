/* The members of a struct tokenizer, only for the files of this folder. All other files use
 * tokenizer.h. */
#ifndef RG_TOKENS_TOKENIZER_PARTS_H
#define RG_TOKENS_TOKENIZER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "worker/text/tokens/added.h"
#include "worker/text/tokens/bpe.h"
#include "worker/text/tokens/decoder.h"
#include "worker/text/tokens/normalizer.h"
#include "worker/text/tokens/pretok.h"
#include "worker/text/tokens/unigram.h"
#include "worker/text/tokens/vocab.h"

enum { TEMPLATE_TEXT = -1 }; /* place of the text's ids in a template */

struct tokenizer {
    struct arena arena; /* memory of the strings below */
    struct vocab vocab;
    bool is_unigram; /* which model is used: `unigram`, else `bpe` */
    struct bpe bpe;
    struct unigram unigram;
    struct added added;
    struct normalizer normalizer;
    struct pretok pretok;
    struct decoder decoder;
    struct token_vec post; /* template of the post-processor: ids and TEMPLATE_TEXT */
    size_t vocab_size;
    size_t longest;     /* longest text of one token, in bytes; 0: unlimited */
    struct buf texts;   /* texts of all ids, one after the other ... */
    uint32_t *texts_at; /* ... id i has [text_at(i), text_at(i + 1)); NULL: pieces are the texts */
    struct buf note;
    uint64_t fingerprint;
};

struct json;

/* A bit of texts_at: the id is not an added token, and its text is whole characters. */
#define TEXT_PLAIN (UINT32_C(1) << 31)

enum { TEXTS_BEHIND = 16 }; /* bytes of t->texts that may be read after the last text */

/* Returns where the text of the id begins in t->texts. */
static inline uint32_t text_at(const struct tokenizer *t, size_t id)
{
    return t->texts_at[id] & ~TEXT_PLAIN;
}

/* Computes the fingerprint. root: the parsed tokenizer.json of t, which is loaded. Never returns
 * 0. */
uint64_t tokenizer_fingerprint_of(const struct tokenizer *t, const struct json *root);

/* Does the last step of loading: fills t->longest, and marks ids that are TEXT_PLAIN. */
void tokenizer_measure(struct tokenizer *t);

#endif
