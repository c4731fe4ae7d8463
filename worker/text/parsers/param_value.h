/*
 * Parameter values that models write as plain text. They are typed by the tool's JSON schema and
 * written as JSON. The rules are vLLM's schema typing (union of types; null, integer, number,
 * boolean, object or array, string, in that order). If a value is not JSON, Python literals are
 * accepted, too.
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

/* Returns the union of types that a schema allows: type (text or list), the kinds of enum values,
 * anyOf / oneOf / allOf. TYPE_STRING for a missing or unknown type. */
unsigned value_types(const struct json *schema);

/* Returns true if a value of these types is always its text, whatever it looks like. */
static inline bool value_verbatim(unsigned types)
{
    return types == TYPE_STRING;
}

/* Appends raw as JSON of the first type that fits; as a string if none does. */
void value_write(struct buf *out, struct str raw, unsigned types);

/* Appends raw by GLM's rule: a string-only parameter unchanged, else JSON, else a Python literal,
 * else JSON whose quotes are escaped (as SGLang reads it), else a string. Empty text for a list is
 * an empty list. */
void value_write_loose(struct buf *out, struct str raw, unsigned types);

/* Appends text as the inside of a JSON string, without quotes. The text may be any fragment of the
 * string. */
void value_escape(struct buf *out, struct str text);

/* Appends text decoded like XML: the content of CDATA sections, and elsewhere the five named
 * entities and numbered ones. Other text is unchanged. */
void value_unescape_xml(struct buf *out, struct str text);

/* Appends the text of a quoted JSON string. Returns 0, or -1 if it is not one. */
int value_unquote(struct buf *out, struct str quoted);

bool value_is_object(struct str text);

#endif
