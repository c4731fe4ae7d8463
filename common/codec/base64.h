/*
 * Base64 as RFC 4648 section 4 defines it: alphabet with + and /, padded with '='. Strict: blanks,
 * missing padding and unused bits that are not zero are errors. Pure.
 */
#ifndef RG_CODEC_BASE64_H
#define RG_CODEC_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

/* Returns the largest number of bytes that text_len characters decode to. Decoding never writes
 * more. */
static inline size_t base64_room(size_t text_len)
{
    return text_len / 4 * 3;
}

/* Decodes a whole text into out, which has base64_room(text.len) bytes. Sets *ret to the number of
 * decoded bytes. Returns 0, or -1 if the text is malformed; the content of out is then undefined.
 */
int base64_decode(struct str text, void *out, size_t *ret);

/* State of a text that arrives in pieces. A zeroed struct is ready for use. */
struct base64_reader {
    char quad[4]; /* characters of an unfinished group */
    uint8_t n;
    bool ended; /* the padding has been read: no group may follow */
};

/* Decodes the next piece and appends its bytes to out. Returns 0, or -1 if the text is malformed.
 */
int base64_feed(struct base64_reader *r, struct str piece, struct buf *out);

/* Checks that the text ended at the end of a group. Returns 0, or -1 if a group is unfinished. */
int base64_finish(const struct base64_reader *r);

/* Returns the number of characters that n bytes are encoded to. */
static inline size_t base64_encoded_len(size_t n)
{
    return (n + 2) / 3 * 4;
}

/* Writes base64_encoded_len(n) characters to out, without a NUL. */
void base64_encode(const void *bytes, size_t n, char *out);

/* Appends these characters to out. */
void base64_append(struct buf *out, const void *bytes, size_t n);

#endif
