/*
 * struct surrogates: makes one text valid UTF-8 while it comes in pieces. JSON may bring half of a
 * character alone (json.h keeps it in three bytes): servers cut texts between the halves. Halves
 * that belong together become their character, others U+FFFD.
 */
#ifndef RG_CODEC_SURROGATES_H
#define RG_CODEC_SURROGATES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct buf;

struct surrogates {
    uint32_t high;   /* a first half at the end of what came; 0: none */
    size_t replaced; /* halves that became U+FFFD */
};

/* Appends the piece to out, valid but for JSON's lone halves. A first half at its end waits for the
 * next piece. */
void surrogates_add(struct surrogates *s, struct str piece, struct buf *out);

/* Appends what waits: no more comes. */
void surrogates_end(struct surrogates *s, struct buf *out);

/* Appends a whole text in one call. */
void surrogates_add_whole(struct str text, struct buf *out);

#endif
