/*
 * struct surrogates: makes a text valid UTF-8 while it arrives in pieces. A JSON string can have a
 * lone half of a character (json.h keeps it in three bytes), because servers cut texts between the
 * halves. Matching halves become their character, all others U+FFFD.
 */
#ifndef RG_CODEC_SURROGATES_H
#define RG_CODEC_SURROGATES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct buf;

struct surrogates {
    uint32_t high;   /* a first half at the end of the text so far; 0: there is none */
    size_t replaced; /* number of halves that became U+FFFD */
};

/* Appends the piece to out. The piece must be valid UTF-8, except for lone halves. A first half at
 * its end waits for the next piece. */
void surrogates_add(struct surrogates *s, struct str piece, struct buf *out);

/* Ends the text: a waiting half becomes U+FFFD. */
void surrogates_end(struct surrogates *s, struct buf *out);

/* Appends a whole text to out. */
void surrogates_add_whole(struct str text, struct buf *out);

#endif
