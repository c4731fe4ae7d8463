/* Reads the query of a request: names and values, percent-decoded ('+' is a space). Pure. */
#ifndef RG_CODEC_QUERY_H
#define RG_CODEC_QUERY_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/str.h"

/* Removes the next pair from *left. Name and value are borrowed and not decoded. Without '=' the
 * value is empty. Empty pairs are skipped. Returns false at the end. Router and worker split
 * queries only here. */
bool query_split(struct str *left, struct str *ret_name, struct str *ret_value);

/* Removes the next pair from *left like query_split, and decodes name and value into the arena. */
bool query_next(struct arena *a, struct str *left, struct str *ret_name, struct str *ret_value);

/* Returns the first value of a parameter, decoded into the arena. Absent (p is NULL) if the query
 * does not have the parameter. */
struct str query_get(struct arena *a, struct str query, const char *name);

#endif
