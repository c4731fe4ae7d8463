/*
 * Checks a JSON schema that an answer must follow: every "type" in it must be one of JSON's. A
 * typing mistake there would allow any value. Pure.
 */
#ifndef RG_PARSERS_SCHEMA_CHECK_H
#define RG_PARSERS_SCHEMA_CHECK_H

#include "common/base/err.h"
#include "common/codec/json.h"

/* Returns 0, or -1 and ERR_INVALID that names the position under `path` and the possible types. */
int schema_check(const struct json *schema, const char *path, struct err *e);

#endif
