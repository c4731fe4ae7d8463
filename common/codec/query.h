/* The query of a request: names and values, percent-decoded ('+' is a space). Pure. */
#ifndef RG_CODEC_QUERY_H
#define RG_CODEC_QUERY_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/str.h"

/* Takes the next name and value off *left, as they are (borrowed); false at the end. Without '='
 * the value is empty. The one place where a query is split, for router and worker. */
bool query_split(struct str *left, struct str *ret_name, struct str *ret_value);

/* Reads the next pair, decoded into the arena; false at the end. Without '=' the value is empty. */
bool query_next(struct arena *a, struct str *left, struct str *ret_name, struct str *ret_value);

/* Value of a query parameter, percent-decoded into the arena; absent when not there. */
struct str query_get(struct arena *a, struct str query, const char *name);

#endif
