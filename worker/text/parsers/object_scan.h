/*
 * struct object_scan: reads one JSON object byte by byte and reports where it ends or breaks.
 * Strict (RFC 8259). Bytes above 0x7f are not checked (the caller's text is UTF-8). No allocation.
 */
#ifndef RG_PARSERS_OBJECT_SCAN_H
#define RG_PARSERS_OBJECT_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "common/codec/json.h"

enum object_scan_state {
    SCAN_VALUE, /* a value must follow */
    SCAN_FIRST_ITEM,
    SCAN_FIRST_KEY,
    SCAN_KEY,
    SCAN_COLON,
    SCAN_STRING,
    SCAN_ESCAPE,
    SCAN_HEX, /* 4 digits of an escape; `left` counts them */
    SCAN_WORD,
    SCAN_MINUS,
    SCAN_ZERO,
    SCAN_DIGITS,
    SCAN_DOT,
    SCAN_FRACTION,
    SCAN_EXP,
    SCAN_EXP_SIGN,
    SCAN_EXP_DIGITS,
    SCAN_AFTER, /* after a value inside a container */
    SCAN_DONE,
    SCAN_BAD,
};

struct object_scan {
    uint8_t state; /* an enum object_scan_state */
    uint8_t left;
    bool is_key;
    uint16_t depth;
    const char *word;
    uint8_t stack[JSON_DEPTH_MAX / 8]; /* one bit for each open container; set: object */
};

void object_scan_init(struct object_scan *s);

/* Reads one byte. The value ends with state SCAN_DONE (its last byte was c) or SCAN_BAD. Only a
 * container or a string can be the whole value. */
void object_scan_byte(struct object_scan *s, char c);

/* Returns true if the whole of s is one JSON value of any kind, perhaps with white space around
 * it. */
bool object_scan_valid(struct str s);

#endif
