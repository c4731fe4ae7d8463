/*
 * struct chunked: a strict, pure scanner of the chunked transfer coding (RFC 9112 7.1). It never
 * changes bytes. It marks framing, payload and trailer lines, so that a relay may forward the
 * framing unchanged and a reader may extract the payload.
 *
 *     size [;extension] CRLF  data CRLF  ...  0 [;extension] CRLF  [trailer lines]  CRLF
 *
 * Refused: sizes with blanks, signs, prefixes or over 15 digits, line ends other than CRLF, control
 * bytes in extensions, extensions of more than 4 KiB or trailers of more than 8 KiB in a message,
 * malformed trailer lines. A zeroed struct is at the start of a message.
 */
#ifndef RG_NET_CHUNKED_H
#define RG_NET_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum chunked_kind { CHUNKED_FRAMING, CHUNKED_DATA, CHUNKED_TRAILER };

struct chunked {
    /* bytes left of the current chunk's data; while the size line is read, the size so far */
    uint64_t left_bytes;
    uint64_t total_bytes; /* bytes of data announced so far in this message, for a limit */
    uint32_t extra_bytes; /* bytes of extensions, then of trailers */
    uint32_t size_lines;  /* number of size lines so far, because each costs time, too */
    unsigned char state;
    unsigned char digits;
};

struct chunked_run {
    size_t len_bytes;
    enum chunked_kind kind;
};

/* Returns in *ret a prefix of `in` of one kind (its length may be 0 only if `in` is empty). A run
 * of framing never contains the beginning of a size line and bytes before it. Returns 1 if its last
 * byte ends the message (the struct is then at a start again, except total_bytes and size_lines), 0
 * if more follows, -1 with ERR_INVALID. */
RG_MUSTCHECK int chunked_next(struct chunked *c, struct str in, struct chunked_run *ret,
                              struct err *e);

/* For a relay: takes *ret_used bytes off `in`, of which the first *ret_pass must be forwarded and
 * the others (trailer lines) dropped. The caller calls again for the rest. An incomplete size
 * line is left in `in` (*ret_used may then be 0), and must be passed again together with the
 * following bytes, so that no part of a malformed line is ever forwarded. Returns the same as
 * chunked_next. */
RG_MUSTCHECK int chunked_scan(struct chunked *c, struct str in, size_t *ret_used, size_t *ret_pass,
                              struct err *e);

#endif
