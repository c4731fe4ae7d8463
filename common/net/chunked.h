/*
 * struct chunked: a strict, pure scanner of the chunked transfer coding (RFC 9112 7.1). It never
 * changes bytes. It marks framing, payload and trailer lines, so that a relay may pass the framing
 * on as it came and a reader may pick the payload out.
 *
 *     size [;extension] CRLF  data CRLF  ...  0 [;extension] CRLF  [trailer lines]  CRLF
 *
 * Refused: sizes with blanks, signs, prefixes or over 15 digits, line ends other than CRLF, control
 * bytes in extensions, extensions of more than 4 KiB or trailers of more than 8 KiB in a message,
 * malformed trailer lines. A zeroed struct stands at the start of a message.
 */
#ifndef RG_NET_CHUNKED_H
#define RG_NET_CHUNKED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

enum chunked_kind { CHUNKED_FRAMING, CHUNKED_DATA, CHUNKED_TRAILER };

struct chunked {
    uint64_t left_bytes;  /* bytes left of the current chunk's data; its size while that is read */
    uint64_t total_bytes; /* data announced so far in this message, for a limit */
    uint32_t extra_bytes; /* extension bytes, then trailer bytes */
    uint32_t size_lines;  /* so far: reading costs by their number, too */
    unsigned char state;
    unsigned char digits;
};

struct chunked_run {
    size_t len_bytes;
    enum chunked_kind kind;
};

/* Looks at a prefix of `in` of one kind (whose length may be 0 only when in is empty); a run of
 * framing never spans the beginning of a size line. 1: its last byte ends the message, and the
 * struct stands at a start again but for total_bytes and size_lines; 0: go on; -1 with ERR_INVALID.
 */
RG_MUSTCHECK int chunked_next(struct chunked *c, struct str in, struct chunked_run *ret,
                              struct err *e);

/* For a relay: takes *ret_used bytes off `in`, of which the first *ret_pass are to be forwarded and
 * the others (trailer lines) dropped. Call again for the rest. A size line that is not complete is
 * left in `in` (*ret_used may then be 0): bring it again with what follows, so that no part of a
 * malformed one is ever forwarded. Results as above. */
RG_MUSTCHECK int chunked_scan(struct chunked *c, struct str in, size_t *ret_used, size_t *ret_pass,
                              struct err *e);

#endif
