/*
 * Converts numbers between JSON's spelling and values, exactly. Texts given to json_number_i64,
 * _double and _same must be valid JSON numbers; the readers have checked the grammar. Pure.
 */
#ifndef RG_CODEC_JSON_NUMBER_H
#define RG_CODEC_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum { JSON_DOUBLE_TEXT_MAX = 32 };

/* Converts a text whose value is an integer ("12", "1.0", "1e3"). Returns 0, or -1 if it is not an
 * integer or exceeds 64 bits. */
int json_number_i64(struct str text, int64_t *ret);

/* Converts to the nearest double (ties to even). Returns 0, or -1 if the number overflows. */
int json_number_double(struct str text, double *ret);

/* Reads a number at *at and moves *at to the byte after it. Returns 1 if done, and -1 if the text
 * is not a number. Returns 0 if the number reaches `end`, because more digits could follow. A
 * number that overflows becomes an infinity. */
int json_number_scan(const char **at, const char *end, double *ret);

/* Reads an integer from 0 to INT32_MAX without sign, point or exponent. Returns as json_number_scan
 * does: the byte after the number must be present. */
int json_number_scan_id(const char **at, const char *end, int32_t *ret);

/* Reports whether both texts are the same real number, whatever its size ("1" and "1.0e0"). */
bool json_number_same(struct str a, struct str b);

/* Writes the shortest text that reads back to the same double, in the form of Python's repr. d must
 * be finite. Returns the number of bytes; no NUL is written. */
size_t json_number_write(char out[static JSON_DOUBLE_TEXT_MAX], double d);

#endif
