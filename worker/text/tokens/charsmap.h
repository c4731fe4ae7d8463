/*
 * struct charsmap: SentencePiece's compiled normalization rules ("precompiled_charsmap"): texts and
 * their replacements. The bytes are u32 (little endian) the size of a double-array trie, the trie's
 * units (u32 each), and the replacements, each ended by a NUL. A unit has a label (bits 0..7 and
 * 31), whether a value follows (bit 8), and the offset of its children (bits 10..30, times 256 with
 * bit 9). The value is an offset into the replacements.
 *
 * The bytes come from files, so an index outside of them is treated as no match. Read-only after
 * parsing.
 */
#ifndef RG_TOKENS_CHARSMAP_H
#define RG_TOKENS_CHARSMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct budget;

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts;
    size_t texts_len;
};

/* Parses the file's Base64. Fails with ERR_CONFIG if it is invalid, or if its texts are not
 * UTF-8. */
int charsmap_parse(struct charsmap *m, struct str base64, struct err *e);
void charsmap_done(struct charsmap *m);

/* Appends the normalized text. A cluster of less than six bytes is looked up as a whole, and its
 * shortest rule is applied. Longer clusters are looked up character by character. *head as in
 * normalizer.h. Returns false if no rule matched (ignore what was appended), or if the budget is
 * exhausted. */
bool charsmap_apply(const struct charsmap *m, struct str text, struct budget *budget, size_t *head,
                    struct buf *out);

#endif
