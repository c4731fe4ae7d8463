/*
 * struct python_scan: one Python literal (str, number, True, False, None, list, tuple, dict;
 * nothing else) read byte by byte and written as JSON while it comes. A zeroed struct is ready.
 * Unlike in Python a string may have newlines, and an integer leading zeros: models write both.
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
    uint8_t digits; /* digits of an escape that are still to come */
    uint8_t n_digits;
    char quote;
    bool is_key;
    bool fresh;     /* the string has no bytes yet */
    bool triple;    /* the string has three quotes on either side */
    uint8_t quotes; /* at the end of a triple-quoted string so far */
    uint16_t depth;
    int nesting; /* open brackets in the present string, less closed ones */
    uint32_t code_point;
    char closes[PYTHON_DEPTH_MAX]; /* the bracket that each open container ends with */
    struct buf word;               /* a number or name that is being read */
};

/* Starts again; memory stays allocated. */
void python_scan_reset(struct python_scan *s);
void python_scan_done(struct python_scan *s);

/* Takes one byte; appends to out what is certain. Blanks before the literal are passed over. */
enum python_step python_scan_byte(struct python_scan *s, char c, struct buf *out);

/* True if the byte would close the string that is being read. */
bool python_scan_closes(const struct python_scan *s, char c);

/* Bytes taken that are not in out yet. */
size_t python_scan_pending(const struct python_scan *s);

/* The text has ended: DONE when a literal has, just now. */
enum python_step python_scan_end(struct python_scan *s, struct buf *out);

#endif
