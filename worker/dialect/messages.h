/*
 * Anthropic Messages, what is apart from the messages themselves: tools, shown and hidden, and
 * blocks that become text. A tool with defer_loading is not in the prompt until a tool_reference
 * names it. Then its definition is written at that point, so that earlier text does not change.
 */
#ifndef RG_DIALECT_MESSAGES_H
#define RG_DIALECT_MESSAGES_H

#include "worker/dialect/request_fields.h"

struct anthropic_tools {
    struct tool_list shown;  /* in the prompt */
    struct tool_list hidden; /* deferred, and those that a message adds */
};

int anthropic_read_tools(struct arena *a, const struct json *body, struct anthropic_tools *ret,
                         struct err *e);

/* Makes one array of both lists. */
const struct json *anthropic_all_tools(struct arena *a, const struct anthropic_tools *tools);

/* Reads tool_choice and parallel_tool_calls. req has its tools already. */
int anthropic_read_choice(const struct json *body, struct chat_request *req, struct err *e);

/* Replaces blocks that can be written as text: references to tools, added and removed tools, search
 * results, documents of text. Returns the content, if it is a list, with text blocks in their
 * places. Records added tools. */
const struct json *blocks_as_text(struct arena *a, const struct json *content,
                                  struct anthropic_tools *tools);

#endif
