/*
 * struct charsmap: SentencePiece's compiled normalization rules ("precompiled_charsmap"): which
 * text takes the place of which. The bytes are u32 (little endian) the size of a double-array trie,
 * the trie's units (u32 each), and the replacements, each ended by a NUL. A unit has a label (bits
 * 0..7 and 31), whether a value hangs below (bit 8), and where its children lie (bits 10..30, times
 * 256 with bit 9); the value is an offset into the replacements.
 *
 * The bytes come from files: an index outside of them is no match. Read-only once parsed.
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

/* Parses the file's Base64. ERR_CONFIG if it is invalid, or its texts are not UTF-8. */
int charsmap_parse(struct charsmap *m, struct str base64, struct err *e);
void charsmap_done(struct charsmap *m);

/* Appends the normalized text. A cluster of less than six bytes is looked up as a whole, and its
 * shortest rule is applied; longer clusters are looked up character by character. *head as in
 * normalizer.h. False: no rule matched, so ignore what was appended; or the budget has run out. */
bool charsmap_apply(const struct charsmap *m, struct str text, struct budget *budget, size_t *head,
                    struct buf *out);

#endif
