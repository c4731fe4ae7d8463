/*
 * struct tool_index: a request's tools by name, and what their schemas say of a parameter, found
 * without a walk: an answer may have thousands of calls and parameters, a request as many tools and
 * properties. What a schema says is looked up in it once, when a call first asks for it.
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

/* Of tools in OpenAI form, or bare {name, parameters}: a list that is borrowed until
 * tool_index_free. Never NULL; nothing is read before the first question. */
struct tool_index *tool_index_new(const struct json *tools);
void tool_index_free(struct tool_index *x); /* or NULL */

/* The tool with that name, of several the first; NULL: none. */
const struct indexed_tool *tool_index_find(struct tool_index *x, struct str name);

/* The tools in their order; NULL behind the last. */
const struct indexed_tool *tool_index_at(struct tool_index *x, size_t i);

/* The schema of property `key` of a schema; where it has none of its own, that of the first schema
 * of its anyOf, oneOf, allOf that has, `unions` levels deep (for one schema always as many). NULL:
 * none. */
const struct json *tool_index_property(struct tool_index *x, const struct json *schema,
                                       struct str key, int unions);

/* value_types of a schema. */
unsigned tool_index_types(struct tool_index *x, const struct json *schema);

#endif
