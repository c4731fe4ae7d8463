/*
 * struct python_scan: one Python literal (str, number, True, False, None, list, tuple, dict;
 * nothing else) read byte by byte and written as JSON while it comes. A zeroed struct is ready.
 */
#ifndef RG_PARSERS_PYTHON_SCAN_H
#define RG_PARSERS_PYTHON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

enum { PYTHON_DEPTH_MAX = 64 };

enum python_step {
    PYTHON_MORE,
    PYTHON_DONE,   /* the byte was the literal's last */
    PYTHON_BEFORE, /* the literal ended before the byte, which is not taken */
    PYTHON_BAD,
};

struct python_scan {
    uint8_t state;
    uint8_t digits; /* of an escape, still to come */
    uint8_t n_digits;
    char quote;
    bool is_key;
    uint16_t depth;
    uint32_t code_point;
    char closes[PYTHON_DEPTH_MAX]; /* the bracket that each open container ends with */
    struct buf word;               /* a number or name that is being read */
};

/* Forgets all; memory stays. */
void python_scan_reset(struct python_scan *s);
void python_scan_done(struct python_scan *s);

/* Takes one byte; appends to out what is certain. Blanks before the literal are passed over. */
enum python_step python_scan_byte(struct python_scan *s, char c, struct buf *out);

/* Bytes taken that are not in out yet. */
size_t python_scan_held(const struct python_scan *s);

/* The text has ended: DONE when a literal has, just now. */
enum python_step python_scan_end(struct python_scan *s, struct buf *out);

#endif
