/*
 * Base64 of RFC 4648 section 4 (alphabet with + and /, '=' padding). Strict: no blanks, no
 * missing padding, unused bits zero. Pure.
 */
#ifndef RG_CODEC_BASE64_H
#define RG_CODEC_BASE64_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/str.h"

/* Bytes that text decodes to at most: decoding writes no more than this. */
static inline size_t base64_room(size_t text_len)
{
    return text_len / 4 * 3;
}

/* Decodes the whole text into out (base64_room bytes); *ret is the count. -1 when malformed;
 * out is then undefined. */
int base64_decode(struct str text, void *out, size_t *ret);

/* Decodes text that comes in pieces; a zeroed struct is ready. */
struct base64_reader {
    char quad[4]; /* an unfinished group */
    uint8_t n;
    bool ended; /* padding was seen */
};

/* Appends what the next piece decodes to; 0, -1 when malformed. */
int base64_feed(struct base64_reader *r, struct str piece, struct buf *out);

/* At the end of the text: 0, or -1 when a group is unfinished. */
int base64_finish(const struct base64_reader *r);

/* Bytes that n bytes encode to. */
static inline size_t base64_encoded_len(size_t n)
{
    return (n + 2) / 3 * 4;
}

/* Writes base64_encoded_len(n) bytes, no NUL. */
void base64_encode(const void *bytes, size_t n, char *out);

#endif
