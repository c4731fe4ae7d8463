/*
 * Small helpers for the parsers of a tokenizer.json's components. A component is an object with a
 * "type"; errors name it ("normalizer Precompiled is not supported").
 */
#ifndef RG_TOKENS_TOKENIZER_CONFIG_H
#define RG_TOKENS_TOKENIZER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct json;
struct pattern;
struct str;

enum { CONFIG_DEPTH_MAX = 16 }; /* limit of Sequences in Sequences */

/* Returns the component's "type"; absent if v is not an object or has none. */
struct str config_type(const struct json *v);

/* Sets the error that `what` (normalizer, decoder, ...) of this type is not supported. Returns
 * -1. */
int config_refuse(const char *what, const struct json *v, struct err *e);

/* Reads a member that must be a boolean. `absent`: value of a missing member (0, 1; -1: an
 * error). */
int config_bool(const struct json *v, const char *key, int absent, bool *ret, struct err *e);

/* Reads a member that must be a string. */
int config_string(const struct json *v, const char *key, struct str *ret, struct err *e);

/* Reads a member that must be a string of exactly one character. */
int config_char(const struct json *v, const char *key, struct str *ret, struct err *e);

/* Reads a member that must be an integer in [0, max]. */
int config_uint(const struct json *v, const char *key, uint32_t max, uint32_t *ret, struct err *e);

/* Reads "pattern": {"String": ...} or {"Regex": ...}. The caller frees the result. */
int config_pattern(const struct json *v, struct pattern **ret, struct err *e);

#endif
