/*
 * Whether a JSON schema that an answer is to follow says what it means: every "type" in it is one
 * that JSON has. A slip there would let any value through. Pure.
 */
#ifndef RG_PARSERS_SCHEMA_CHECK_H
#define RG_PARSERS_SCHEMA_CHECK_H

#include "common/base/err.h"
#include "common/codec/json.h"

/* 0, or -1 and ERR_INVALID that names the place under `path` and the types there are. */
int schema_check(const struct json *schema, const char *path, struct err *e);

#endif
