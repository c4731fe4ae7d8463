/*
 * Anthropic Messages: tools, and content blocks that become text. A tool with defer_loading is not
 * in the prompt until a tool_reference names it. Its definition is then written at that point, so
 * that earlier text does not change.
 */
#ifndef RG_DIALECT_MESSAGES_H
#define RG_DIALECT_MESSAGES_H

#include "worker/dialect/request_fields.h"

struct anthropic_tools {
    struct tool_list shown;  /* in the prompt */
    struct tool_list hidden; /* not in the prompt: deferred tools, and tools that a message adds */
};

/* Reads the request's tools into *ret. Returns -1 and ERR_INVALID if a tool is invalid. */
int anthropic_read_tools(struct arena *a, const struct json *body, struct anthropic_tools *ret,
                         struct err *e);

/* Returns one array of both lists, in the arena. */
const struct json *anthropic_all_tools(struct arena *a, const struct anthropic_tools *tools);

/* Reads tool_choice and parallel_tool_calls. Call it after the tools are in req. */
int anthropic_read_choice(const struct json *body, struct chat_request *req, struct err *e);

/* Replaces blocks that can be written as text: tool references, added and removed tools, search
 * results, text documents. Returns the content, with text blocks in their places if it is a list.
 * Adds added tools to tools->hidden. */
const struct json *blocks_as_text(struct arena *a, const struct json *content,
                                  struct anthropic_tools *tools);

#endif
