/*
 * Numbers in JSON's spelling: text to and from values, exactly. Texts given to these functions
 * are valid JSON numbers (the readers have checked the grammar). Pure.
 */
#ifndef RG_CODEC_JSON_NUMBER_H
#define RG_CODEC_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum { JSON_DOUBLE_TEXT_MAX = 32 };

/* An integral value that fits ("12", "1.0", "1e3"); 0 / -1. */
int json_number_i64(struct str text, int64_t *ret);

/* The nearest double (ties to even); -1 when it overflows. */
int json_number_double(struct str text, double *ret);

/* Reads a number at *at and moves *at to the byte after it. Any other byte, or the text's end, may
 * follow. Returns 1 if done, 0 if the number reaches `end` (more digits could follow), -1 if it is
 * not valid. An overflow gives an infinity. */
int json_number_scan(const char **at, const char *end, double *ret);

/* Reads a plain integer from 0 to INT32_MAX like json_number_scan. Another byte must follow. */
int json_number_scan_id(const char **at, const char *end, int32_t *ret);

/* Whether both are the same real number, whatever their size ("1" and "1.0e0"). */
bool json_number_same(struct str a, struct str b);

/* Shortest text that reads back to the same finite double, in the form of Python's repr; returns
 * its bytes (no NUL). */
size_t json_number_write(char out[static JSON_DOUBLE_TEXT_MAX], double d);

#endif
