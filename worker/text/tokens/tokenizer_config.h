/*
 * Reading the parts of a tokenizer.json: small helpers that all parsers of parts share. A part is
 * an object with a "type"; errors name the part ("normalizer Precompiled is not supported").
 */
#ifndef RG_TOKENS_TOKENIZER_CONFIG_H
#define RG_TOKENS_TOKENIZER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct json;
struct pattern;
struct str;

enum { CONFIG_DEPTH_MAX = 16 }; /* Sequences in Sequences */

/* The part's "type"; absent when v is no object or has none. */
struct str config_type(const struct json *v);

/* err_set: `what` (normalizer, decoder, ...) of this type is not supported. Returns -1. */
int config_refuse(const char *what, const struct json *v, struct err *e);

/* A member that must be a boolean; `absent` gives what a missing one means (0, 1; -1: an error). */
int config_bool(const struct json *v, const char *key, int absent, bool *ret, struct err *e);

/* A member that must be a string. */
int config_string(const struct json *v, const char *key, struct str *ret, struct err *e);

/* A member that must be a string of exactly one character. */
int config_char(const struct json *v, const char *key, struct str *ret, struct err *e);

/* A member that must be an integer in [0, max]. */
int config_uint(const struct json *v, const char *key, uint32_t max, uint32_t *ret, struct err *e);

/* "pattern": {"String": ...} or {"Regex": ...}. The result is the caller's. */
int config_pattern(const struct json *v, struct pattern **ret, struct err *e);

#endif
