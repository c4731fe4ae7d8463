/*
 * Parameter values that models write as plain text, typed by the tool's JSON schema and written
 * as JSON. Rules: vLLM's schema typing (union of types; null, integer, number, boolean, object or
 * array, string, in that order) with Python literals accepted where JSON fails.
 */
#ifndef RG_PARSERS_PARAM_VALUE_H
#define RG_PARSERS_PARAM_VALUE_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"
#include "common/codec/json.h"

enum param_type {
    TYPE_NULL = 1,
    TYPE_INTEGER = 2,
    TYPE_NUMBER = 4,
    TYPE_BOOLEAN = 8,
    TYPE_OBJECT = 16,
    TYPE_ARRAY = 32,
    TYPE_STRING = 64,
};

/* The union of types that a schema allows: type (text or list), the kinds of enum values,
 * anyOf / oneOf / allOf; TYPE_STRING for a missing or unknown one. */
unsigned value_types(const struct json *schema);

/* True when a value of these types is its text, whatever it looks like. */
static inline bool value_verbatim(unsigned types)
{
    return types == TYPE_STRING;
}

/* Appends raw as JSON of the first type that fits; a string when none does. */
void value_write(struct buf *out, struct str raw, unsigned types);

/* GLM's rule: a string-only parameter verbatim, else JSON, else a Python literal, else JSON whose
 * quotes are escaped (as SGLang reads it), else a string. Nothing, for a list: an empty one. */
void value_write_loose(struct buf *out, struct str raw, unsigned types);

/* Appends text as the inside of a JSON string, without quotes; any cut of it may be given. */
void value_escape(struct buf *out, struct str text);

/* Appends text decoded like XML: CDATA sections without their marks, elsewhere the five named
 * entities and numbered ones; other text is unchanged. */
void value_unescape_xml(struct buf *out, struct str text);

/* Appends the text of a quoted JSON string. Returns 0, or -1 if it is not one. */
int value_unquote(struct buf *out, struct str quoted);

bool value_is_object(struct str text);

#endif
