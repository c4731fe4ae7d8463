/*
 * The content of an error object besides its message: a status as a number, or a word instead. An
 * error in the body of a 200 has no other status. Pure.
 */
#ifndef RG_WIRE_ERROR_WORDS_H
#define RG_WIRE_ERROR_WORDS_H

#include <stdint.h>

#include "common/base/str.h"

struct json;

/* Returns the HTTP status that a code or type means, given as a number or a word ("429",
 * "rate_limit_exceeded", "overloaded_error"). 0: unknown. */
int64_t error_words_status(struct str word);

/* Returns the status that an error object means by its code, else by its status or type; 500 if
 * none is known. */
int64_t error_words_read(const struct json *error);

/* Returns the seconds to wait that an error object asks for, next to its message or in `metadata`;
 * 0: none. */
uint32_t error_words_wait(const struct json *error);

#endif
