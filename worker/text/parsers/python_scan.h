/*
 * struct python_scan: reads one Python literal (str, number, True, False, None, list, tuple, dict;
 * nothing else) byte by byte and writes it as JSON at the same time. A zeroed struct is ready.
 * Unlike in Python, a string may contain newlines and an integer may have leading zeros: models
 * write both.
 */
#ifndef RG_PARSERS_PYTHON_SCAN_H
#define RG_PARSERS_PYTHON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

enum { PYTHON_DEPTH_MAX = 64 };

enum python_step {
    PYTHON_MORE,
    PYTHON_DONE,   /* the byte was the last one of the literal */
    PYTHON_BEFORE, /* the literal ended before the byte, which was not read */
    PYTHON_BAD,
};

struct python_scan {
    uint8_t state;
    uint8_t digits; /* digits of an escape that must still follow */
    uint8_t n_digits;
    char quote;
    bool is_key;
    bool fresh;     /* the string has no bytes yet */
    bool triple;    /* the string has three quotes on either side */
    uint8_t quotes; /* quotes at the end of a triple-quoted string so far */
    uint16_t depth;
    int nesting; /* open minus closed brackets inside of the present string */
    uint32_t code_point;
    char closes[PYTHON_DEPTH_MAX]; /* the bracket that ends each open container */
    struct buf word;               /* a number or name that is being read */
};

/* Resets the state and keeps the memory. */
void python_scan_reset(struct python_scan *s);
void python_scan_done(struct python_scan *s);

/* Reads one byte and appends to out what is certain. Blanks before the literal are skipped. */
enum python_step python_scan_byte(struct python_scan *s, char c, struct buf *out);

/* True if the byte would close the string that is being read. */
bool python_scan_closes(const struct python_scan *s, char c);

/* Returns the number of bytes read that are not in out yet. */
size_t python_scan_pending(const struct python_scan *s);

/* Ends the text. Returns DONE if that ended a literal. */
enum python_step python_scan_end(struct python_scan *s, struct buf *out);

#endif
