/*
 * The words by which engines and upstreams say that a prompt does not fit their context. Every
 * server has its own, and clients of another dialect know none of them. Pure.
 */
#ifndef RG_WIRE_OVERFLOW_H
#define RG_WIRE_OVERFLOW_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct arena;
struct json;

/* Returns whether the words say so. Fills *ret with the figures that they have, the others are 0.
 * `sure`: only words that mean nothing else count. */
bool overflow_in_words(struct str words, bool sure, struct err_overflow *ret);

/* Returns whether `code` is one that servers give this error. */
bool overflow_is_code(struct str code);

/* Returns the message of an error object with its code and its figures, if these say so: as words
 * that overflow_in_words reads. Otherwise returns the message as it is. */
struct str overflow_message(struct arena *a, const struct json *error, struct str message);

#endif
