/*
 * struct tokenizer: a loaded Hugging Face tokenizer.json. Encoding and decoding equal those of the
 * reference library (Rust `tokenizers` 0.22/0.23) id for id and byte for byte. Features that cannot
 * be done exactly are refused by name when loading (ERR_UNSUPPORTED), never approximated.
 *
 * A tokenizer is immutable after loading and holds no file open: load it before the fork, and every
 * process shares its pages. Changing state (scratch, the bounded cache of words) is in a struct
 * encoder or struct detok, one for each process or thread.
 *
 * 0.23 differs from 0.22 in normalized added tokens, which it decodes in their normalized form, and
 * in contents that occur twice. There this follows 0.22, which transformers uses.
 *
 * As in the library, the ids of added tokens are those that the vocabulary gives (a token of the
 * vocabulary keeps its id, others follow), whatever "id" says in the file. `truncation` and
 * `padding` of the file are not applied (tokenizer_remarks names them). transformers switches both
 * off for chat templates, and a gateway must not cut prompts silently. Not here: chat templates,
 * files other than tokenizer.json. Pure except for reading the file in tokenizer_load.
 */
#ifndef RG_TOKENS_TOKENIZER_H
#define RG_TOKENS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct tokenizer;
struct encoder;
struct detok;
struct token_vec;

/* One entry of "added_tokens", resolved like in the library. */
struct added_token {
    struct str content; /* content as in the file; lives as long as the tokenizer */
    int32_t id;
    bool special; /* dropped by skip_special_tokens */
    bool single_word;
    bool lstrip, rstrip;
    bool normalized; /* searched after normalization */
};

/* Reports whether this machine runs compiled patterns. A hardened unit can silently switch that
 * off; matching is then 15 to 26 times slower. */
bool tokenizer_jit_works(void);

/* Reads path (a tokenizer.json). The caller frees *ret (tokenizer_free). Errors: ERR_IO, ERR_CONFIG
 * (not a tokenizer), ERR_UNSUPPORTED (names the feature). */
int tokenizer_load(const char *path, struct tokenizer **ret, struct err *e);

/* Parses the text of a tokenizer.json, which may be freed afterwards. */
int tokenizer_parse(struct str json, struct tokenizer **ret, struct err *e);

/* Makes the built-in byte tokenizer: ids 0..255 are bytes, 256 <|im_start|>, 257 <|im_end|>, 258
 * <|endoftext|> (special). The caller frees it. */
struct tokenizer *tokenizer_builtin(void);

void tokenizer_free(struct tokenizer *t); /* accepts NULL */

/* --- look-ups --- */

/* Returns the id of a token as the file writes it (added tokens first, then the vocabulary, in
 * which a byte-level space is U+0120), or -1. */
int32_t tokenizer_id(const struct tokenizer *t, struct str piece);

/* Returns the token as the file writes it; absent if the id is unknown. */
struct str tokenizer_piece(const struct tokenizer *t, int32_t id);

/* Returns the bytes of the token: byte-level pieces converted to bytes (perhaps a fragment of a
 * character), others as the file writes them. Absent if the id is unknown. */
struct str tokenizer_text(const struct tokenizer *t, int32_t id);

/* Returns the highest id + 1. Every id that encoding returns is below. */
size_t tokenizer_vocab_size(const struct tokenizer *t);

/* Returns a lower bound for the number of tokens of the text, from its bytes alone, without
 * encoding. 0: no bound is known. */
size_t tokenizer_fewest(const struct tokenizer *t, struct str text);

bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* Reports whether the id is one of "added_tokens", special or not, so that ordinary text never has
 * it. */
bool tokenizer_is_added(const struct tokenizer *t, int32_t id);

/* Counts the first ids that are ordinary text: each is one or more whole characters in any context,
 * and none is an added token. Returns 0 if decoding is not byte-level. */
size_t tokenizer_plain(const struct tokenizer *t, const int32_t *ids, size_t n);

/* Returns the added token of this id, or NULL. */
const struct added_token *tokenizer_added_of(const struct tokenizer *t, int32_t id);

/* Return the number of added tokens, and each in the order of the file (without duplicates). */
size_t tokenizer_added_count(const struct tokenizer *t);
const struct added_token *tokenizer_added(const struct tokenizer *t, size_t i);

/* Reports whether decoding is byte-level: the text of ids is then the concatenation of
 * tokenizer_text. */
bool tokenizer_byte_level(const struct tokenizer *t);

/* Returns a number that differs if anything in the file differs on which encoding or decoding
 * depends (not its spelling). The same on every machine, so it may be stored. Never 0. */
uint64_t tokenizer_fingerprint(const struct tokenizer *t);

/* Returns notes on this file for `rollgate check` (ignored fields, patterns that run on PCRE2), one
 * sentence a line; "" if there are none. */
const char *tokenizer_remarks(const struct tokenizer *t);

/* --- encoding --- */

/* Makes scratch and word cache (about 1.5 MB, fixed; filled lazily). Borrows t. */
struct encoder *encoder_new(const struct tokenizer *t);
void encoder_free(struct encoder *enc); /* accepts NULL */

/* Appends the ids of text (valid UTF-8) to out. add_special_tokens runs the post-processor's
 * template (chat templates: false). Returns -1, with out unchanged, if the text needs an unk_token
 * that the vocabulary lacks, if a pattern exceeded its budget, or if text is not UTF-8 (ERR_INVALID
 * / ERR_UNSUPPORTED). */
int encoder_encode(struct encoder *enc, struct str text, bool add_special_tokens,
                   struct token_vec *out, struct err *e);

/* Texts of added tokens that encoder_encode_plain treats as ordinary text: those that begin at
 * these n byte positions (ascending). Otherwise it works like encoder_encode. */
struct plain_places {
    const size_t *at;
    size_t n;
};

int encoder_encode_plain(struct encoder *enc, struct str text, const struct plain_places *plain,
                         struct token_vec *out, struct err *e);

/* Encodes without the post-processor's ids, in steps that end after an added token when some 32 KB
 * have passed. *at starts at 0 and is the position of the next step. Returns 1 after the last step,
 * 0 if more remain, -1 on error. */
int encoder_encode_step(struct encoder *enc, struct str text, size_t *at, struct token_vec *out,
                        struct err *e);

/* --- decoding --- */

/* Appends the text of n ids. Unknown ids are dropped; broken UTF-8 becomes U+FFFD as in the
 * library. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                      bool skip_special_tokens, struct buf *out);

/*
 * struct detok: decoding as ids arrive. The texts of detok_feed and detok_finish together equal
 * tokenizer_decode of all ids, however the ids are split. Text is appended when no later id can
 * change it (byte-level: at most 3 bytes wait). Borrows t.
 */
struct detok *detok_new(const struct tokenizer *t, bool skip_special_tokens);
void detok_free(struct detok *d); /* accepts NULL */

/* Appends the text that becomes certain with this id, perhaps none. */
void detok_feed(struct detok *d, int32_t id, struct buf *out);

/* Decodes the first ids that are plain (tokenizer_plain) in one call, while out has fewer than
 * `until` bytes. Returns the number of decoded ids; 0 also if a fragment of a character waits. */
size_t detok_feed_plain(struct detok *d, const int32_t *ids, size_t n, size_t until,
                        struct buf *out);

/* Appends what was still waiting (an unfinished character as U+FFFD) and resets d. */
void detok_finish(struct detok *d, struct buf *out);

#endif
