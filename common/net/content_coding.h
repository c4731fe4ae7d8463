/*
 * struct content_decoder: a body with a Content-Encoding (RFC 9110, 8.4), decoded in steps that are
 * short enough for a loop: gzip and deflate. Memory is bounded by the decoded length and by how
 * often it may exceed the encoded one. Pure.
 */
#ifndef RG_NET_CONTENT_CODING_H
#define RG_NET_CONTENT_CODING_H

#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

enum content_coding { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

/* Value of Accept-Encoding in the answer to an unknown coding (RFC 7694). */
#define CONTENT_CODINGS "gzip, deflate"

enum {
    CODING_STEP = 64 << 10, /* most bytes that a step reads, and that it makes */
    /* decoded bytes that any body may have; a longer body may have at most */
    CODING_FREE = 1 << 20,
    CODING_RATIO_MAX = 256, /* so many times its encoded bytes */
};

/* Adds a header's value, a list, to the coding of earlier headers. More than one coding counts as
 * unknown. */
enum content_coding content_coding_add(enum content_coding had, struct str value);

struct content_decoder;

/* Makes a decoder of gzip or deflate (in zlib's format, or raw as some clients send it). `encoded`
 * is borrowed. */
struct content_decoder *content_decoder_new(enum content_coding coding, struct str encoded,
                                            size_t max_bytes);
void content_decoder_free(struct content_decoder *d);

/* Returns the bytes that the next step may read. */
struct str content_decoder_next(const struct content_decoder *d);

/* Appends the next piece to `out`, which must contain all earlier ones. Returns 1 after the last, 0
 * if more follow, -1 with ERR_INVALID or ERR_BODY_TOO_LARGE. */
int content_decoder_step(struct content_decoder *d, struct buf *out, struct err *e);

#endif
