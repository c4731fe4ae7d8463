/*
 * Recognizes the texts by which engines and upstreams report that a prompt does not fit their
 * context. Every server has its own, and clients of a different dialect know none of them. Pure.
 */
#ifndef RG_WIRE_OVERFLOW_H
#define RG_WIRE_OVERFLOW_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct arena;
struct json;

/* Reports whether the text says so. Fills *ret with its figures; the others are 0. `sure`: only
 * texts with no other meaning count. */
bool overflow_in_words(struct str words, bool sure, struct err_overflow *ret);

/* Reports whether `code` is one that servers use for this error. */
bool overflow_is_code(struct str code);

/* Returns the message of an error object. If its code or figures report an overflow, adds them in a
 * form that overflow_in_words reads. Otherwise returns the message unchanged. */
struct str overflow_message(struct arena *a, const struct json *error, struct str message);

#endif
