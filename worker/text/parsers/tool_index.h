/*
 * struct tool_index: finds a request's tools by name, and the schema of a parameter, without a
 * linear search. An answer may have thousands of calls and parameters, and a request as many tools
 * and properties. A schema is read once, when a call first needs it.
 */
#ifndef RG_PARSERS_TOOL_INDEX_H
#define RG_PARSERS_TOOL_INDEX_H

#include <stddef.h>

#include "common/base/str.h"

struct json;

struct indexed_tool {
    struct str name;
    const struct json *parameters; /* or NULL */
};

struct tool_index;

/* Makes an index of tools in OpenAI form, or bare {name, parameters}. The list is borrowed until
 * tool_index_free. Never NULL; nothing is read before the first look-up. */
struct tool_index *tool_index_new(const struct json *tools);
void tool_index_free(struct tool_index *x); /* or NULL */

/* Returns the first tool with that name; NULL: there is none. */
const struct indexed_tool *tool_index_find(struct tool_index *x, struct str name);

/* Returns the tools in their order; NULL after the last. */
const struct indexed_tool *tool_index_at(struct tool_index *x, size_t i);

/* Finds the schema of property `key`. If the schema has none of its own, that of its first anyOf,
 * oneOf or allOf that has one, `unions` levels deep (use the same number for a schema each time).
 * NULL: there is none. */
const struct json *tool_index_property(struct tool_index *x, const struct json *schema,
                                       struct str key, int unions);

/* Returns the value_types of a schema. */
unsigned tool_index_types(struct tool_index *x, const struct json *schema);

#endif
